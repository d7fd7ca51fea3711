#include "dataplane/transfer/wire.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <string_view>

#include "dataplane/base/check.h"

namespace tidepool::transfer::internal {
namespace {

constexpr uint32_t kMagic = 0x58465054;  // "TPFX"
constexpr uint8_t kVersion = 1;
constexpr size_t kMaxTextBytes = 1024;
constexpr uint8_t kMaxCode = static_cast<uint8_t>(Code::kUnauthenticated);

class Writer {
 public:
  explicit Writer(FrameType type) {
    bytes_.reserve(256);
    Put(kMagic);
    Put(kVersion);
    Put(static_cast<uint8_t>(type));
    Put(uint16_t{0});
    Put(uint32_t{0});  // head_bytes
    Put(uint32_t{0});
    Put(uint64_t{0});  // payload_bytes
  }

  template <std::unsigned_integral T>
  void Put(T value) {
    Append(std::as_bytes(std::span(&value, 1)));
  }
  void Put(const Mac& mac) { Append(mac); }
  void Put(std::string_view text) {
    const std::string_view kept = text.substr(0, kMaxTextBytes);
    Put(static_cast<uint32_t>(kept.size()));
    Append(std::as_bytes(std::span(kept)));
  }

  Bytes Finish(uint64_t payload_bytes = 0) {
    const auto head_bytes = static_cast<uint32_t>(bytes_.size() - kHeaderBytes);
    CHECK(head_bytes <= kMaxHeadBytes);
    std::memcpy(bytes_.data() + 8, &head_bytes, sizeof(head_bytes));
    std::memcpy(bytes_.data() + 16, &payload_bytes, sizeof(payload_bytes));
    return std::move(bytes_);
  }

 private:
  void Append(std::span<const std::byte> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }

  Bytes bytes_;
};

// Reads past the end yield zeros and make Done() fail.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T Get() {
    T value = 0;
    Copy(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  Mac GetMac() {
    Mac mac{};
    Copy(mac);
    return mac;
  }
  std::string GetText() {
    const auto size = Get<uint32_t>();
    if (size > kMaxTextBytes || size > bytes_.size()) {
      failed_ = true;
      return "";
    }
    std::string text(size, '\0');
    Copy(std::as_writable_bytes(std::span(text)));
    return text;
  }
  size_t left() const { return bytes_.size(); }

  Status Done(std::string_view frame) const {
    if (failed_) return InvalidArgument("{} frame: too short", frame);
    if (!bytes_.empty())
      return InvalidArgument("{} frame: {} bytes too long", frame,
                             bytes_.size());
    return OkStatus();
  }

 private:
  void Copy(std::span<std::byte> out) {
    if (failed_ || out.size() > bytes_.size()) {
      failed_ = true;
      return;
    }
    std::copy_n(bytes_.begin(), out.size(), out.begin());
    bytes_ = bytes_.subspan(out.size());
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

Bytes EncodeSlices(const WriteHead& head, FrameType type) {
  CHECK(!head.slices.empty() && head.slices.size() <= kMaxSlicesPerFrame);
  const bool copy = type == FrameType::kCopy;
  Writer out(type);
  out.Put(head.batch);
  out.Put(head.first_slice);
  out.Put(head.capability);
  out.Put(head.incarnation);
  out.Put(head.generation);
  out.Put(head.mac);
  out.Put(head.slice_bytes);
  if (copy) out.Put(head.source_region);
  out.Put(static_cast<uint32_t>(head.slices.size()));
  for (const WireSlice& slice : head.slices) {
    out.Put(slice.extent);
    out.Put(slice.checksum);
    if (copy) out.Put(slice.source_offset);
  }
  return out.Finish(copy ? 0 : head.slices.size() * head.slice_bytes);
}

constexpr size_t SliceWireBytes(bool copy) { return copy ? 20 : 12; }

static_assert(kMaxSlicesPerFrame * SliceWireBytes(true) + 128 <= kMaxHeadBytes);

}  // namespace

Bytes Encode(const Hello& hello) {
  Writer out(FrameType::kHello);
  out.Put(hello.sender_incarnation);
  out.Put(hello.receiver_incarnation);
  return out.Finish();
}

Bytes Encode(const Welcome& welcome) {
  Writer out(FrameType::kWelcome);
  out.Put(welcome.incarnation);
  out.Put(welcome.boot_id);
  out.Put(welcome.shm_name);
  return out.Finish();
}

Bytes Encode(const RegionOffer& region) {
  Writer out(FrameType::kRegion);
  out.Put(region.region);
  out.Put(region.bytes);
  return out.Finish();
}

Bytes Encode(const RegionMapped& mapped) {
  Writer out(FrameType::kRegionMapped);
  out.Put(mapped.region);
  out.Put(mapped.error);
  return out.Finish();
}

Bytes EncodeWrite(const WriteHead& write) {
  return EncodeSlices(write, FrameType::kWrite);
}

Bytes EncodeCopy(const WriteHead& copy) {
  return EncodeSlices(copy, FrameType::kCopy);
}

Bytes Encode(const Ack& ack) {
  Writer out(FrameType::kAck);
  out.Put(ack.batch);
  out.Put(ack.first_slice);
  out.Put(static_cast<uint32_t>(ack.codes.size()));
  for (const Code code : ack.codes) out.Put(static_cast<uint8_t>(code));
  return out.Finish();
}

Bytes Encode(const Goodbye& goodbye) {
  Writer out(FrameType::kGoodbye);
  out.Put(static_cast<uint8_t>(goodbye.code));
  out.Put(goodbye.message);
  return out.Finish();
}

StatusOr<FrameHeader> ParseHeader(
    std::span<const std::byte, kHeaderBytes> bytes) {
  Reader in(bytes);
  if (in.Get<uint32_t>() != kMagic)
    return InvalidArgument("frame header: not a messenger's");
  if (const auto version = in.Get<uint8_t>(); version != kVersion)
    return InvalidArgument("frame header: version {}, not {}", version,
                           kVersion);
  const auto type = in.Get<uint8_t>();
  if (type < static_cast<uint8_t>(FrameType::kHello) ||
      type > static_cast<uint8_t>(FrameType::kGoodbye))
    return InvalidArgument("frame header: unknown type {}", type);
  FrameHeader header{.type = static_cast<FrameType>(type)};
  const auto flags = in.Get<uint16_t>();
  header.head_bytes = in.Get<uint32_t>();
  const auto reserved = in.Get<uint32_t>();
  if (flags != 0 || reserved != 0)
    return InvalidArgument("frame header: reserved bits are set");
  header.payload_bytes = in.Get<uint64_t>();
  if (header.head_bytes > kMaxHeadBytes)
    return InvalidArgument("frame header: head of {} bytes, at most {}",
                           header.head_bytes, kMaxHeadBytes);
  if (header.payload_bytes != 0 && header.type != FrameType::kWrite)
    return InvalidArgument("frame header: type {} carries no payload", type);
  return header;
}

StatusOr<Hello> ParseHello(std::span<const std::byte> head) {
  Reader in(head);
  Hello hello;
  hello.sender_incarnation = in.Get<uint64_t>();
  hello.receiver_incarnation = in.Get<uint64_t>();
  RETURN_IF_ERROR(in.Done("hello"));
  return hello;
}

StatusOr<Welcome> ParseWelcome(std::span<const std::byte> head) {
  Reader in(head);
  Welcome welcome;
  welcome.incarnation = in.Get<uint64_t>();
  welcome.boot_id = in.GetText();
  welcome.shm_name = in.GetText();
  RETURN_IF_ERROR(in.Done("welcome"));
  return welcome;
}

StatusOr<RegionOffer> ParseRegionOffer(std::span<const std::byte> head) {
  Reader in(head);
  RegionOffer region;
  region.region = in.Get<uint64_t>();
  region.bytes = in.Get<uint64_t>();
  RETURN_IF_ERROR(in.Done("region"));
  return region;
}

StatusOr<RegionMapped> ParseRegionMapped(std::span<const std::byte> head) {
  Reader in(head);
  RegionMapped mapped;
  mapped.region = in.Get<uint64_t>();
  mapped.error = in.GetText();
  RETURN_IF_ERROR(in.Done("region-mapped"));
  return mapped;
}

StatusOr<WriteHead> ParseWrite(const FrameHeader& header,
                               std::span<const std::byte> head) {
  const bool copy = header.type == FrameType::kCopy;
  Reader in(head);
  WriteHead write;
  write.batch = in.Get<uint64_t>();
  write.first_slice = in.Get<uint32_t>();
  write.capability = in.Get<uint64_t>();
  write.incarnation = in.Get<uint64_t>();
  write.generation = in.Get<uint64_t>();
  write.mac = in.GetMac();
  write.slice_bytes = in.Get<uint64_t>();
  if (copy) write.source_region = in.Get<uint64_t>();
  const auto count = in.Get<uint32_t>();
  if (count == 0 || count > kMaxSlicesPerFrame)
    return InvalidArgument("write frame: {} slices, must be 1 to {}", count,
                           kMaxSlicesPerFrame);
  if (write.slice_bytes == 0 || write.slice_bytes > kMaxSliceBytes)
    return InvalidArgument("write frame: slices of {} bytes, must be 1 to {}",
                           write.slice_bytes, kMaxSliceBytes);
  if (in.left() != count * SliceWireBytes(copy))
    return InvalidArgument("write frame: {} slices do not fill its head",
                           count);
  // Both factors are bounded above: no overflow.
  const uint64_t payload = copy ? 0 : count * write.slice_bytes;
  if (header.payload_bytes != payload)
    return InvalidArgument("write frame: payload of {} bytes, expected {}",
                           header.payload_bytes, payload);
  write.slices.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    WireSlice& slice = write.slices[i];
    slice.extent = in.Get<uint32_t>();
    slice.checksum = in.Get<uint64_t>();
    if (copy) slice.source_offset = in.Get<uint64_t>();
    if (i > 0 && slice.extent <= write.slices[i - 1].extent)
      return InvalidArgument("write frame: extents do not increase");
  }
  RETURN_IF_ERROR(in.Done("write"));
  return write;
}

StatusOr<Ack> ParseAck(std::span<const std::byte> head) {
  Reader in(head);
  Ack ack;
  ack.batch = in.Get<uint64_t>();
  ack.first_slice = in.Get<uint32_t>();
  const auto count = in.Get<uint32_t>();
  if (count == 0 || count > kMaxSlicesPerFrame || count != in.left())
    return InvalidArgument("ack frame: bad count {}", count);
  ack.codes.resize(count);
  for (Code& code : ack.codes) {
    const auto value = in.Get<uint8_t>();
    // kUnknown is the mark of a slice that is not answered yet.
    if (value > kMaxCode || value == static_cast<uint8_t>(Code::kUnknown))
      return InvalidArgument("ack frame: no result {}", value);
    code = static_cast<Code>(value);
  }
  RETURN_IF_ERROR(in.Done("ack"));
  return ack;
}

StatusOr<Goodbye> ParseGoodbye(std::span<const std::byte> head) {
  Reader in(head);
  Goodbye goodbye;
  const auto code = in.Get<uint8_t>();
  goodbye.message = in.GetText();
  RETURN_IF_ERROR(in.Done("goodbye"));
  if (code == 0 || code > kMaxCode)
    return InvalidArgument("goodbye frame: bad code {}", code);
  goodbye.code = static_cast<Code>(code);
  return goodbye;
}

}  // namespace tidepool::transfer::internal
