#include "dataplane/worker/worker_core_streams.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/check.h"

namespace tidepool::worker {

void SliceStreamer::StartStep(std::vector<StreamPages> pages) {
  CHECK(step_.empty());
  step_ = std::move(pages);
  layers_done_ = 0;
  for (const StreamPages& part : step_) streams_.try_emplace(part.stream);
}

void SliceStreamer::OnLayer(int32_t layer, std::vector<SliceSubmission>& out) {
  CHECK(layer == layers_done_);
  ++layers_done_;
  for (const StreamPages& part : step_) {
    const auto it = streams_.find(part.stream);
    if (it != streams_.end()) Submit(it->second, part, layer, layer + 1, out);
  }
}

void SliceStreamer::FinishStep(bool ok) {
  if (ok) {
    CHECK(layers_done_ == num_layers_ || step_.empty());
    for (StreamPages& part : step_) {
      const auto it = streams_.find(part.stream);
      // With a target, every layer was submitted as it was computed.
      if (it == streams_.end() || it->second.target != nullptr) continue;
      it->second.final_pages.push_back(std::move(part));
    }
  }
  step_.clear();
  layers_done_ = 0;
}

void SliceStreamer::AddFinal(StreamPages pages,
                             std::vector<SliceSubmission>& out) {
  Stream& stream = streams_[pages.stream];
  if (stream.target == nullptr) {
    stream.final_pages.push_back(std::move(pages));
  } else {
    Submit(stream, pages, 0, num_layers_, out);
  }
}

void SliceStreamer::Open(std::shared_ptr<const StreamTarget> target,
                         std::vector<SliceSubmission>& out) {
  Stream& stream = streams_[target->stream];
  CHECK(stream.target == nullptr);
  stream.target = std::move(target);
  for (const StreamPages& pages : std::exchange(stream.final_pages, {})) {
    Submit(stream, pages, 0, num_layers_, out);
  }
  for (const StreamPages& part : step_) {
    if (part.stream != stream.target->stream) continue;
    Submit(stream, part, 0, layers_done_, out);
  }
}

bool SliceStreamer::Close(StreamId id) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return true;
  it->second.closed = true;
  if (it->second.in_flight > 0) return false;
  streams_.erase(it);
  return true;
}

bool SliceStreamer::Complete(StreamId id) {
  const auto it = streams_.find(id);
  CHECK(it != streams_.end() && it->second.in_flight > 0);
  if (--it->second.in_flight > 0 || !it->second.closed) return false;
  streams_.erase(it);
  return true;
}

void SliceStreamer::Submit(Stream& stream, const StreamPages& pages,
                           int32_t layer_begin, int32_t layer_end,
                           std::vector<SliceSubmission>& out) {
  if (stream.target == nullptr || stream.closed) return;
  const uint32_t skip = stream.target->first_page > pages.first_page
                            ? stream.target->first_page - pages.first_page
                            : 0;
  if (skip >= pages.pages.size() || layer_begin == layer_end) return;
  out.push_back(
      {.target = stream.target,
       .layer_begin = layer_begin,
       .layer_end = layer_end,
       .extent_begin = pages.first_page + skip - stream.target->first_page,
       .pages = {pages.pages.begin() + skip, pages.pages.end()}});
  ++stream.in_flight;
}

}  // namespace tidepool::worker
