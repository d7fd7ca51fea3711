// The weights of a folder of safetensors files.
#include <xxhash.h>

#include <list>
#include <map>
#include <set>
#include <utility>

#include "dataplane/model/file_io.h"
#include "dataplane/model/mapped_file.h"
#include "dataplane/model/safetensors_header.h"
#include "dataplane/model/weights.h"
#include "dataplane/model/weights_internal.h"

namespace tidepool::model {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

struct Shard {
  MappedFile file;
  SafetensorsHeader header;
};

StatusOr<Shard> OpenShard(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(file.bytes(), file.bytes().size());
  if (!header.ok()) return Annotate(header.status(), path);
  return Shard{std::move(file), *std::move(header)};
}

class SafetensorsSource : public WeightSource {
 public:
  Status AddFile(const std::string& directory, const std::string& name) {
    ASSIGN_OR_RETURN(Shard shard, OpenShard(directory + "/" + name));
    const MappedFile& file = files_.emplace_back(std::move(shard.file));
    for (auto& [tensor, entry] : shard.header)
      tensors_.emplace(tensor, Tensor{&file, std::move(entry)});
    return OkStatus();
  }

  // Index and shards must agree tensor by tensor: an entry too many or too few
  // means that the folder is a mixture of two models.
  Status AddShards(const std::string& directory,
                   const SafetensorsIndex& index) {
    std::set<std::string> names;
    for (const auto& [tensor, file] : index) names.insert(file);
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(Shard shard, OpenShard(directory + "/" + name));
      const MappedFile& file = files_.emplace_back(std::move(shard.file));
      for (auto& [tensor, entry] : shard.header) {
        const auto listed = index.find(tensor);
        if (listed == index.end() || listed->second != name) {
          return InvalidArgument(
              "{}: tensor {:?}: {} places it in {}", file.path(), tensor,
              kIndexFile, listed == index.end() ? "no file" : listed->second);
        }
        tensors_.emplace(tensor, Tensor{&file, std::move(entry)});
      }
    }
    for (const auto& [tensor, file] : index) {
      if (!tensors_.contains(tensor)) {
        return InvalidArgument(
            "{}/{}: tensor {:?} is missing, though {} names it", directory,
            file, tensor, kIndexFile);
      }
    }
    return OkStatus();
  }

  StatusOr<TensorView> Get(std::string_view name,
                           std::span<const int64_t> expected_shape) override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      return NotFound(
          "tensor {:?}: not in {}", name,
          files_.size() == 1 ? files_.begin()->path() : "any shard");
    }
    const Tensor& tensor = it->second;
    const std::optional<DType> dtype = WeightDType(tensor.entry.dtype);
    if (!dtype.has_value()) {
      return Unimplemented(
          "{}: tensor {:?}: dtype {:?} is not supported (F32, F16 and BF16 "
          "are)",
          tensor.file->path(), name, tensor.entry.dtype);
    }
    RETURN_IF_ERROR(CheckShape(tensor.file->path(), name, tensor.entry.shape,
                               expected_shape));
    return TensorView{*dtype, tensor.entry.shape, tensor.Bytes()};
  }

  StatusOr<Sha256Digest> Digest() override {
    Sha256 digest;
    digest.Update("tidepool weights 1");
    for (const auto& [name, tensor] : tensors_) {
      AppendTensor(digest, name, tensor.entry.dtype, tensor.entry.shape);
      const std::span<const std::byte> bytes = tensor.Bytes();
      const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
      digest.UpdateU64(hash.low64);
      digest.UpdateU64(hash.high64);
    }
    return digest.Finish();
  }

 private:
  struct Tensor {
    const MappedFile* file;
    SafetensorsEntry entry;

    std::span<const std::byte> Bytes() const {
      return file->bytes().subspan(entry.begin, entry.end - entry.begin);
    }
  };

  std::list<MappedFile> files_;  // a list: tensors point into it
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace

StatusOr<std::unique_ptr<WeightSource>> OpenSafetensors(
    const std::string& directory) {
  auto source = std::make_unique<SafetensorsSource>();
  const Status single = source->AddFile(directory, kSingleFile);
  if (single.ok()) return source;
  if (single.code() != Code::kNotFound) return single;

  const std::string index_path = directory + "/" + kIndexFile;
  const StatusOr<std::string> index_text = ReadSmallFile(index_path);
  if (index_text.status().code() == Code::kNotFound) {
    return NotFound("{}: neither {} nor {} is there", directory, kSingleFile,
                    kIndexFile);
  }
  RETURN_IF_ERROR(index_text.status());
  const StatusOr<SafetensorsIndex> index = ParseSafetensorsIndex(*index_text);
  if (!index.ok()) return Annotate(index.status(), index_path);
  RETURN_IF_ERROR(source->AddShards(directory, *index));
  return source;
}

}  // namespace tidepool::model
