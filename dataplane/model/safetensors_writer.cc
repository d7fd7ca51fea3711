#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "dataplane/model/weights.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

constexpr size_t kAlignment = 8;

std::string_view SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
  }
  return "";
}

class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "wbe")) {}
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status Write(std::span<const std::byte> bytes) {
    if (file_ == nullptr ||
        std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
      return ErrnoError(errno, fmt::format("write {}", path_));
    }
    return OkStatus();
  }
  Status Close() {
    if (std::fclose(std::exchange(file_, nullptr)) != 0)
      return ErrnoError(errno, fmt::format("write {}", path_));
    return OkStatus();
  }

 private:
  const std::string path_;
  std::FILE* file_;
};

// The length, then the header, padded so that the data begin aligned.
std::string Framed(const json& header) {
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string framed;
  for (int i = 0; i < 8; ++i)
    framed.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  return framed + text;
}

}  // namespace

Status WriteSafetensors(const ModelConfig& config, WeightSource& source,
                        const std::string& path) {
  // Two passes over the source: it may keep no more than one tensor, and the
  // header comes first.
  json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  const std::vector<TensorSpec> specs = TensorsOf(config);
  for (const TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(const TensorView view, source.Get(spec.name, spec.shape));
    header[spec.name] = {{"dtype", SafetensorsName(view.dtype)},
                         {"shape", view.shape},
                         {"data_offsets", {offset, offset + view.data.size()}}};
    offset += view.data.size();
  }
  OutputFile file(path);
  const std::string framed = Framed(header);
  RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(framed))));
  for (const TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(const TensorView view, source.Get(spec.name, spec.shape));
    RETURN_IF_ERROR(file.Write(view.data));
  }
  return file.Close();
}

}  // namespace tidepool::model
