// The destination's end of one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"
#include "dataplane/transfer/counters.h"
#include "dataplane/transfer/event_loop.h"
#include "dataplane/transfer/frame_io.h"
#include "dataplane/transfer/grant_table.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/shared_memory.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer::internal {

class InboundConnection;

// What all inbound connections of a messenger share.
struct InboundContext {
  EventLoop& loop;
  GrantTable& grants;
  Counters& counters;
  const MessengerOptions& options;
  std::string boot_id, shm_name;
  // Called before `writer` starts to write extents that it may write: whatever
  // another connection still writes into them must not land any more.
  std::function<void(const InboundConnection& writer, const WriteHead&)>
      on_admit;
  // The connection has closed itself and may be destroyed later.
  std::function<void(const InboundConnection&)> on_closed;
};

// Reads frames and moves what they carry into granted memory: from the socket
// straight into place (tcp), or out of the peer's mapped memory (shm). Verifies
// each slice before acknowledging it. Confined to the loop's thread.
class InboundConnection {
 public:
  InboundConnection(InboundContext& context, UniqueFd fd, Transport transport);
  ~InboundConnection();

  Status Start();
  void CloseIfStuck(TimePoint now);

  // From now on nothing lands in the capability's window; what is on its way
  // is read and thrown away.
  void Discard(uint64_t capability);
  // The same for the extents of a newer frame.
  void Supersede(const WriteHead& newer);

 private:
  // A frame whose slices are being moved.
  struct Landing {
    WriteHead frame;
    std::vector<GrantTable::Admission> slices;
    size_t index = 0;     // slice being moved
    uint64_t offset = 0;  // bytes of it that are done
  };

  void OnReady();
  // True if it may go on at once; false if it waits for the peer.
  StatusOr<bool> Step(uint64_t& budget);
  Status HandleFrame();
  Status HandleHello();
  Status HandleRegion();
  Status BeginLanding();
  // Move slices until `budget` is spent or nothing more is there.
  StatusOr<bool> Receive(uint64_t& budget);
  StatusOr<bool> ReceiveOnce(uint64_t& budget);
  Status Copy(uint64_t& budget);
  Code CopySlice(const WireSlice& slice, std::byte* target);
  void Verify(size_t index);
  void FinishLanding();
  void Refuse(size_t index, Code code);
  bool OnlyAcknowledges() const;
  void UpdateEvents();
  void Close(const Status& reason);

  InboundContext& context_;
  UniqueFd fd_;
  const Transport transport_;
  EventLoop::WatchId watch_ = 0;
  FrameReader reader_;
  FrameWriter writer_;
  bool greeted_ = false;
  TimePoint last_progress_;
  std::optional<Landing> landing_;
  std::unordered_map<RegionId, PeerMapping> mappings_;
};

}  // namespace tidepool::transfer::internal
