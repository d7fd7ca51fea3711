// One way to configure every binary: each option is a flag `--name`, a YAML
// key `name`, and a Helm value of the same name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool {

// The options of one binary. Targets given to Add… keep their value as the
// default, must outlive the set, and are written by Parse alone.
//
//   WorkerConfig config;
//   OptionSet options("tidepool-worker", "One engine process.");
//   options.AddInt("max-num-seqs", config.max_num_seqs, {1, 4096}, "…");
//   ASSIGN_OR_RETURN(const OptionSet::Outcome outcome,
//                    options.Parse(argc, argv));
class OptionSet {
 public:
  struct IntRange {
    int64_t min, max;
  };
  struct DoubleRange {
    double min, max;
  };

  enum class Outcome {
    kRun,   // options are set
    kExit,  // --help, --version or --print-config was answered on stdout
  };

  OptionSet(std::string program, std::string description);

  void AddString(std::string name, std::string& target, std::string help);
  // One of `choices`, exactly.
  void AddChoice(std::string name, std::string& target,
                 std::vector<std::string> choices, std::string help);
  void AddInt(std::string name, int64_t& target, IntRange range,
              std::string help);
  // Finite and within `range`.
  void AddDouble(std::string name, double& target, DoubleRange range,
                 std::string help);
  // `--name`, `--name=false`.
  void AddBool(std::string name, bool& target, std::string help);
  // Repeatable flag; a list in YAML.
  void AddStrings(std::string name, std::vector<std::string>& target,
                  std::string help);
  // Bytes with an optional suffix Ki, Mi, Gi, Ti (or K, M, G, T: powers of
  // 1000).
  void AddBytes(std::string name, uint64_t& target, IntRange range,
                std::string help);
  // Positional arguments; at most `max_count`. None are taken without this.
  void AddPositional(std::string name, std::vector<std::string>& target,
                     size_t max_count, std::string help);

  // Flags win over the YAML file named by `--config`, which wins over the
  // defaults.
  // Errors: kInvalidArgument naming the flag or key (with the line of the
  // file) and why; kNotFound when the file is not there.
  StatusOr<Outcome> Parse(int argc, const char* const* argv);

  // True if a flag or the file set `name`.
  bool WasSet(std::string_view name) const;
  // YAML of all options as they are, secrets (texts whose names end in `key` or
  // `token`) masked.
  std::string Effective() const;
  // YAML of those that `other` knows by the same names, unmasked: what the
  // program of `other` takes with --config to have them as they are here.
  std::string ConfigFor(const OptionSet& other) const;
  std::string Help() const;

 private:
  struct Option {
    std::string name, help, type;
    bool is_flag = false;  // may stand without a value
    bool is_list = false;
    // Parses and stores one value; lists append.
    std::function<Status(const std::string&)> set;
    std::function<void()> clear;                       // lists only
    std::function<std::vector<std::string>()> values;  // one if no list
    bool was_set = false;

    bool IsSecret() const;
    // Its values, masked if secret, as YAML.
    std::string Show() const;
  };

  Option& Add(std::string name, std::string type, std::string help);
  Option* Find(std::string_view name);
  const Option* Find(std::string_view name) const;
  Status ApplyFlags(int argc, const char* const* argv,
                    std::optional<std::string>& config_path,
                    std::optional<std::string>& answer);
  Status ApplyFile(const std::string& path);

  std::string program_, description_;
  std::vector<Option> options_;
  std::string positional_name_, positional_help_;
  std::vector<std::string>* positional_ = nullptr;
  size_t positional_max_ = 0;
};

// "64Ki" → 65536. Errors: kInvalidArgument.
StatusOr<uint64_t> ParseBytes(std::string_view text);

}  // namespace tidepool
