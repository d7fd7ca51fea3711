#include "dataplane/engine/perf_model.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

namespace tidepool::engine {
namespace {

constexpr Seconds kStepMax = std::chrono::hours(1);

// Reads the numbers of one mapping and refuses what it does not know.
class Section {
 public:
  Section(const YAML::Node& node, std::string where)
      : node_(node), where_(std::move(where)) {}

  Status Number(const std::string& key, double min, double max, bool required,
                double& target) {
    known_.insert(key);
    const YAML::Node value = node_ ? node_[key] : YAML::Node();
    if (!node_ || !value.IsDefined()) {
      if (!required) return OkStatus();
      return InvalidArgument("{}.{}: is missing", where_, key);
    }
    double number = 0;
    if (!value.IsScalar() || !YAML::convert<double>::decode(value, number) ||
        !std::isfinite(number)) {
      return InvalidArgument("{}.{}: is not a number", where_, key);
    }
    if (number < min || number > max)
      return InvalidArgument("{}.{}: {} is not within [{}, {}]", where_, key,
                             number, min, max);
    target = number;
    return OkStatus();
  }
  Status Time(const std::string& key, bool required, Seconds& target) {
    double seconds = target.count();
    RETURN_IF_ERROR(Number(key, 0, 3600, required, seconds));
    target = Seconds(seconds);
    return OkStatus();
  }
  void Know(const std::string& key) { known_.insert(key); }

  Status RefuseUnknown() const {
    if (!node_) return OkStatus();
    if (!node_.IsMap()) return InvalidArgument("{}: is not a mapping", where_);
    for (const auto& entry : node_) {
      const std::string key = entry.first.Scalar();
      if (!known_.contains(key))
        return InvalidArgument("{}.{}: is unknown", where_, key);
    }
    return OkStatus();
  }

 private:
  YAML::Node node_;
  std::string where_;
  std::set<std::string> known_;
};

StatusOr<PerfModel> Read(const YAML::Node& root, const std::string& name) {
  if (!root.IsMap()) return InvalidArgument("{}: is not a mapping", name);
  PerfModel model;
  Section top(root, name);
  top.Know("prefill");
  top.Know("decode");
  RETURN_IF_ERROR(top.Time("load_seconds", false, model.load));
  double capacity = static_cast<double>(model.kv_capacity_tokens);
  RETURN_IF_ERROR(
      top.Number("kv_capacity_tokens", 1024, 1 << 28, false, capacity));
  model.kv_capacity_tokens = static_cast<int64_t>(capacity);
  RETURN_IF_ERROR(top.Number("speed", 1e-3, 1e6, false, model.speed));
  RETURN_IF_ERROR(top.RefuseUnknown());

  const auto mapping = [&](const char* key) -> StatusOr<YAML::Node> {
    const YAML::Node node = root[key];
    if (!node.IsDefined() || !node.IsMap())
      return InvalidArgument("{}.{}: is missing or not a mapping", name, key);
    return node;
  };
  ASSIGN_OR_RETURN(const YAML::Node prefill_node, mapping("prefill"));
  Section prefill(prefill_node, name + ".prefill");
  RETURN_IF_ERROR(prefill.Time("base_seconds", true, model.prefill_base));
  RETURN_IF_ERROR(
      prefill.Time("seconds_per_token", true, model.per_prompt_token));
  RETURN_IF_ERROR(prefill.Time("seconds_per_token_and_context_token", false,
                               model.per_prompt_token_and_context_token));
  RETURN_IF_ERROR(prefill.RefuseUnknown());

  ASSIGN_OR_RETURN(const YAML::Node decode_node, mapping("decode"));
  Section decode(decode_node, name + ".decode");
  RETURN_IF_ERROR(decode.Time("base_seconds", true, model.decode_base));
  RETURN_IF_ERROR(
      decode.Time("seconds_per_sequence", true, model.per_sequence));
  RETURN_IF_ERROR(
      decode.Time("seconds_per_context_token", false, model.per_context_token));
  RETURN_IF_ERROR(decode.RefuseUnknown());
  return model;
}

}  // namespace

Duration PerfModel::StepTime(const StepPlan& plan) const {
  Seconds base{0}, work{0};
  for (const SequenceStep& step : plan.sequences) {
    const double tokens = step.end - step.begin;
    // A single token of output is decoded; everything else is computed as a
    // prompt, output that is computed again included.
    if (tokens == 1 && step.end > step.prompt_tokens) {
      base = std::max(base, decode_base);
      work += per_sequence + per_context_token * double(step.end);
    } else {
      base = std::max(base, prefill_base);
      const double mean_context = step.begin + (tokens - 1) / 2;
      work += tokens * (per_prompt_token +
                        per_prompt_token_and_context_token * mean_context);
    }
  }
  const Seconds time = std::min((base + work) / speed, kStepMax);
  return std::chrono::duration_cast<Duration>(time);
}

StatusOr<PerfModel> ParsePerfModel(std::string_view text,
                                   const std::string& name) {
  try {
    return Read(YAML::Load(std::string(text)), name);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}: {}", name, error.what());
  }
}

StatusOr<PerfModel> ReadPerfModel(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("{}: cannot be read", path);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  return ParsePerfModel(text, path);
}

}  // namespace tidepool::engine
