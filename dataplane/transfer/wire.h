// The frames that messengers exchange: a fixed header, a small typed head, and
// for kWrite the slices' bytes. All numbers little-endian.
//
//   source                       destination
//   kHello          ──────▶
//                   ◀──────      kWelcome, or kGoodbye and close
//   kRegion (+ fd)  ──────▶                           (shm only)
//                   ◀──────      kRegionMapped        (shm only)
//   kWrite | kCopy  ──────▶
//                   ◀──────      kAck
//
// Everything that arrives is parsed with checked lengths; what does not parse
// closes the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/transfer/capability.h"

namespace tidepool::transfer::internal {

inline constexpr size_t kHeaderBytes = 24;
inline constexpr uint32_t kMaxHeadBytes = 64 << 10;
inline constexpr uint32_t kMaxSlicesPerFrame = 2048;
inline constexpr uint64_t kMaxSliceBytes = 64 << 20;

enum class FrameType : uint8_t {
  kHello = 1,
  kWelcome = 2,
  kRegion = 3,
  kRegionMapped = 4,
  kWrite = 5,
  kCopy = 6,
  kAck = 7,
  kGoodbye = 8,
};

struct FrameHeader {
  FrameType type = FrameType::kHello;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;  // 0 but for kWrite
};

struct Hello {
  uint64_t sender_incarnation = 0;
  uint64_t receiver_incarnation = 0;  // whom the sender means
};

struct Welcome {
  uint64_t incarnation = 0;
  std::string boot_id;   // of the kernel it runs on
  std::string shm_name;  // abstract socket to map memory through
};

// Memory of the sender, whose descriptor accompanies the frame.
struct RegionOffer {
  RegionId region = 0;
  uint64_t bytes = 0;
};

struct RegionMapped {
  RegionId region = 0;
  std::string error;  // empty if mapped
};

struct WireSlice {
  uint32_t extent = 0;
  uint64_t checksum = 0;
  uint64_t source_offset = 0;  // kCopy only
};

// Slices of one batch, [first_slice, first_slice + slices.size()). kWrite
// carries their bytes as payload in order, kCopy says where to read them.
// Extents increase strictly, so that a frame writes none twice.
struct WriteHead {
  uint64_t batch = 0;
  uint32_t first_slice = 0;
  uint64_t capability = 0;
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  Mac mac{};
  uint64_t slice_bytes = 0;
  RegionId source_region = 0;  // kCopy only
  std::vector<WireSlice> slices;
};

// One code per slice of the frame it answers, in order; never kUnknown.
struct Ack {
  uint64_t batch = 0;
  uint32_t first_slice = 0;
  std::vector<Code> codes;
};

struct Goodbye {
  Code code = Code::kUnknown;
  std::string message;
};

using Bytes = std::vector<std::byte>;

// Header and head of a frame.
Bytes Encode(const Hello& hello);
Bytes Encode(const Welcome& welcome);
Bytes Encode(const RegionOffer& region);
Bytes Encode(const RegionMapped& mapped);
Bytes EncodeWrite(const WriteHead& write);
Bytes EncodeCopy(const WriteHead& copy);
Bytes Encode(const Ack& ack);
Bytes Encode(const Goodbye& goodbye);

// Errors of all parsers: kInvalidArgument with what is wrong.
StatusOr<FrameHeader> ParseHeader(
    std::span<const std::byte, kHeaderBytes> bytes);
StatusOr<Hello> ParseHello(std::span<const std::byte> head);
StatusOr<Welcome> ParseWelcome(std::span<const std::byte> head);
StatusOr<RegionOffer> ParseRegionOffer(std::span<const std::byte> head);
StatusOr<RegionMapped> ParseRegionMapped(std::span<const std::byte> head);
// Guarantees 1 to kMaxSlicesPerFrame slices of 1 to kMaxSliceBytes bytes, and
// that the payload is exactly theirs.
StatusOr<WriteHead> ParseWrite(const FrameHeader& header,
                               std::span<const std::byte> head);
StatusOr<Ack> ParseAck(std::span<const std::byte> head);
StatusOr<Goodbye> ParseGoodbye(std::span<const std::byte> head);

}  // namespace tidepool::transfer::internal
