#include "controller/reconcilers/packed.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tidepool::reconcilers {
namespace {

template <typename T, typename Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

template <typename T>
concept Number = std::integral<T> || std::is_enum_v<T>;

constexpr size_t kUuidBytes = 16;

std::string ToUuid(std::string_view bytes) {
  std::string text = absl::BytesToHexString({bytes.data(), bytes.size()});
  for (const size_t dash : {8, 13, 18, 23}) text.insert(dash, 1, '-');
  return text;
}

// The bytes that ToUuid makes `text` of; "" if there are none.
std::string UuidBytes(const std::string& text) {
  std::string digits = text;
  std::erase(digits, '-');
  if (digits.size() != 2 * kUuidBytes) return "";
  std::string bytes = absl::HexStringToBytes(digits);
  return ToUuid(bytes) == text ? bytes : "";
}

// All fields of each type, the key first. By structured bindings: a type that
// gets another field does not compile before it is here.
void Visit(Is<CustomResource> auto& object, auto& visitor) {
  auto& [key, uid, version, generation, observed, deleting, family, spec,
         status] = object;
  visitor.Take(key, uid, version, generation, observed, deleting, family, spec,
               status);
}

void Visit(Is<WorkloadFigures> auto& figures, auto& visitor) {
  auto& [generation, observed, wanted, replicas, ready, updated, available,
         update_revision, template_digest, devices] = figures;
  visitor.Take(generation, observed, wanted, replicas, ready, updated,
               available, update_revision, template_digest, devices);
}

void Visit(Is<Child> auto& object, auto& visitor) {
  auto& [key, uid, owner_uid, family, version, digest, deleting, figures] =
      object;
  visitor.Take(key, uid, owner_uid, family, version, digest, deleting, figures);
}

void Visit(Is<PodView> auto& pod, auto& visitor) {
  auto& [key, uid, family, pool, role, revision, ip, devices, is_conductor,
         ready, terminating, finished, trouble, trouble_text] = pod;
  visitor.Take(key, uid, family, pool, role, revision, ip, devices,
               is_conductor, ready, terminating, finished, trouble,
               trouble_text);
}

class Writer {
 public:
  void Take(const auto&... fields) { (Write(fields), ...); }

  std::unique_ptr<const char[]> Bytes() const {
    auto bytes = std::make_unique_for_overwrite<char[]>(bytes_.size());
    std::ranges::copy(bytes_, bytes.get());
    return bytes;
  }

 private:
  // Seven bits a byte, the lowest first: most numbers are small.
  void Write(Number auto number) {
    auto left = static_cast<uint64_t>(number);
    for (; left >= 0x80; left >>= 7) bytes_ += static_cast<char>(left | 0x80);
    bytes_ += static_cast<char>(left);
  }
  void WriteText(const std::string& text) {
    Write(text.size());
    bytes_ += text;
  }
  // Sizes are one more here, and 0 that of a UUID.
  void Write(const std::string& text) {
    if (const std::string uuid = UuidBytes(text); !uuid.empty()) {
      Write(0);
      bytes_ += uuid;
      return;
    }
    Write(text.size() + 1);
    bytes_ += text;
  }
  void Write(const kube::ObjectKey& key) {
    WriteText(key.space);
    WriteText(key.name);
  }
  void Write(const std::unique_ptr<const WorkloadFigures>& figures) {
    Write(figures != nullptr);
    if (figures != nullptr) Visit(*figures, *this);
  }

  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const char* bytes) : at_(bytes) {}

  void Take(auto&... fields) { (Read(fields), ...); }

  std::string_view Text() { return Bytes(Size()); }

 private:
  std::string_view Bytes(size_t size) {
    return {std::exchange(at_, at_ + size), size};
  }
  size_t Size() {
    size_t size = 0;
    Read(size);
    return size;
  }
  void Read(Number auto& number) {
    uint64_t value = 0;
    int shift = 0;
    for (; (*at_ & 0x80) != 0; shift += 7)
      value |= static_cast<uint64_t>(*at_++ & 0x7f) << shift;
    value |= static_cast<uint64_t>(*at_++) << shift;
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  }
  void Read(std::string& text) {
    const size_t size = Size();
    text = size == 0 ? ToUuid(Bytes(kUuidBytes)) : std::string(Bytes(size - 1));
  }
  void Read(kube::ObjectKey& key) {
    key.space = Text();
    key.name = Text();
  }
  void Read(std::unique_ptr<const WorkloadFigures>& figures) {
    bool is_there = false;
    Read(is_there);
    if (!is_there) return;
    auto read = std::make_unique<WorkloadFigures>();
    Visit(*read, *this);
    figures = std::move(read);
  }

  const char* at_;
};

}  // namespace

template <typename T>
Packed<T>::Packed(const T& object) {
  Writer writer;
  Visit(object, writer);
  bytes_ = writer.Bytes();
}

template <typename T>
std::shared_ptr<const T> Packed<T>::Unpack() const {
  auto object = std::make_shared<T>();
  Reader reader(bytes_.get());
  Visit(*object, reader);
  return object;
}

template <typename T>
kube::ObjectKeyView Packed<T>::key() const {
  Reader reader(bytes_.get());
  const std::string_view space = reader.Text();
  return {space, reader.Text()};
}

template class Packed<CustomResource>;
template class Packed<Child>;
template class Packed<PodView>;

}  // namespace tidepool::reconcilers
