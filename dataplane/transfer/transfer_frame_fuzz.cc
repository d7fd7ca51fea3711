// Frames as a hostile peer would send them: whatever parses must also survive
// the grant table.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/transfer/grant_table.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer::internal {
namespace {

void Try(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return;
  const auto header = ParseHeader(bytes.first<kHeaderBytes>());
  if (!header.ok()) return;
  const std::span<const std::byte> head = bytes.subspan(kHeaderBytes);
  switch (header->type) {
    case FrameType::kHello:
      (void)ParseHello(head);
      return;
    case FrameType::kWelcome:
      (void)ParseWelcome(head);
      return;
    case FrameType::kRegion:
      (void)ParseRegionOffer(head);
      return;
    case FrameType::kRegionMapped:
      (void)ParseRegionMapped(head);
      return;
    case FrameType::kAck:
      (void)ParseAck(head);
      return;
    case FrameType::kGoodbye:
      (void)ParseGoodbye(head);
      return;
    case FrameType::kWrite:
    case FrameType::kCopy:
      break;
  }
  auto write = ParseWrite(*header, head);
  if (!write.ok()) return;

  static std::vector<std::byte> memory(4096);
  static GrantTable grants(1, 1, 1024);
  static const Capability capability = *grants.Add(memory,
                                                   {.region = 1,
                                                    .page_ids = {3, 0, 1},
                                                    .num_layers = 2,
                                                    .layer_stride_bytes = 2048,
                                                    .slice_bytes = 512},
                                                   TimePoint::max());
  // The fuzzer cannot guess a MAC, nor should what follows depend on it.
  write->capability = capability.id;
  write->incarnation = capability.incarnation;
  write->generation = capability.generation;
  write->mac = capability.mac;
  std::vector<GrantTable::Admission> admissions;
  grants.Admit(*write, TimePoint(), admissions);
  CHECK(admissions.size() == write->slices.size());
  for (const GrantTable::Admission& admission : admissions) {
    if (admission.target == nullptr) continue;
    CHECK(write->slice_bytes == 512);
    CHECK(admission.target >= memory.data() &&
          admission.target + 512 <= memory.data() + memory.size());
  }
}

}  // namespace
}  // namespace tidepool::transfer::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tidepool::transfer::internal::Try(std::as_bytes(std::span(data, size)));
  return 0;
}
