// Which slices to send when, while a prompt's layers are still being computed
// (DESIGN §3, step 4).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/engine/kv_layout.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::worker {

// One request's KV on its way to a decode worker; never reused.
using StreamId = uint64_t;

// Where a stream goes. Immutable.
struct StreamTarget {
  StreamId stream = 0;
  ::tidepool::worker::v1::TransferCapability capability;
  std::string transfer_address;  // of the peer's messenger
  // The context page that capability.page_ids(0) is for; those before it are
  // at the receiver already.
  uint32_t first_page = 0;
};

// Consecutive pages of one stream's context, by local page id.
struct StreamPages {
  StreamId stream = 0;
  uint32_t first_page = 0;  // index in the context, in pages
  std::vector<engine::PageId> pages;
};

// Slices to be written now: for each layer of [layer_begin, layer_end), the
// local pages[k] to extent (layer, extent_begin + k) of the capability.
struct SliceSubmission {
  std::shared_ptr<const StreamTarget> target;
  int32_t layer_begin = 0, layer_end = 0;
  uint32_t extent_begin = 0;
  std::vector<engine::PageId> pages;

  size_t num_slices() const {
    return pages.size() * static_cast<size_t>(layer_end - layer_begin);
  }
};

// What became of one submission: the input of WorkerCore::OnSlicesSent.
struct SlicesSent {
  StreamId stream = 0;
  int32_t layer_begin = 0, layer_end = 0;
  uint32_t extent_begin = 0;
  bool ok = false;
  std::string error;  // if not ok
  // Of the slices as sent, in the order [layer][page] of the submission.
  std::vector<uint64_t> checksums;
  std::string transport;  // "tcp", "shm"
};

// Joins the two things that a slice waits for: its KV being computed and the
// capability being known, in whichever order they come. Every slice of a
// stream that is opened and computed to the end is submitted exactly once.
//
// Externally synchronized: the shell's engine thread reports layers while its
// core thread opens streams, under one mutex that is never held across I/O.
// Submissions are appended to `out`; they hold copies only.
class SliceStreamer {
 public:
  explicit SliceStreamer(int32_t num_layers) : num_layers_(num_layers) {}

  // A step is about to run and will make these pages final, layer by layer.
  // At most one step runs at a time.
  void StartStep(std::vector<StreamPages> pages);
  // The running step has written `layer`; called in order of layers.
  void OnLayer(int32_t layer, std::vector<SliceSubmission>& out);
  // The step is over (all layers, or failed: then its pages never get final).
  void FinishStep(bool ok);

  // Pages that are final already (found in the cache).
  void AddFinal(StreamPages pages, std::vector<SliceSubmission>& out);
  void Open(std::shared_ptr<const StreamTarget> target,
            std::vector<SliceSubmission>& out);
  // Nothing more is submitted for `stream`. True if nothing is in flight
  // either; else the Complete call that ends the last submission returns true.
  bool Close(StreamId stream);
  // One submission ended, well or not. True if `stream` is closed and nothing
  // of it is in flight any more: tell the core with OnStreamClosed.
  bool Complete(StreamId stream);

  size_t num_streams() const { return streams_.size(); }

 private:
  struct Stream {
    std::shared_ptr<const StreamTarget> target;  // null until opened
    std::vector<StreamPages> final_pages;        // waiting for the capability
    uint32_t in_flight = 0;
    bool closed = false;
  };

  void Submit(Stream& stream, const StreamPages& pages, int32_t layer_begin,
              int32_t layer_end, std::vector<SliceSubmission>& out);

  const int32_t num_layers_;
  std::map<StreamId, Stream> streams_;
  std::vector<StreamPages> step_;  // of the running step
  int32_t layers_done_ = 0;        // of the running step
};

}  // namespace tidepool::worker
