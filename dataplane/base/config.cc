#include "dataplane/base/config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/version.h"

namespace tidepool {
namespace {

constexpr std::string_view kText = "TEXT";

template <typename T>
StatusOr<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return InvalidArgument("`{}` is out of range", text);
  if (error != std::errc() || end != text.data() + text.size())
    return InvalidArgument("`{}` is not a number", text);
  return value;
}

// Quotes what YAML would take for something else.
std::string ToYaml(const std::vector<std::string>& values, bool is_list) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  if (is_list) out << YAML::BeginSeq;
  for (const std::string& value : values) out << value;
  if (is_list) out << YAML::EndSeq;
  return out.c_str();
}

}  // namespace

bool OptionSet::Option::IsSecret() const {
  return type.starts_with(kText) &&
         (name.ends_with("key") || name.ends_with("token"));
}

std::string OptionSet::Option::Show() const {
  std::vector<std::string> shown = values();
  if (IsSecret())
    for (std::string& value : shown)
      if (!value.empty()) value = "***";
  return ToYaml(shown, is_list);
}

StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const size_t digits_end = text.find_first_not_of("0123456789");
  if (text.empty() || digits_end == 0)
    return InvalidArgument("`{}` is not a number of bytes", text);
  const std::string_view suffix =
      digits_end == text.npos ? std::string_view() : text.substr(digits_end);
  ASSIGN_OR_RETURN(const uint64_t count,
                   ParseNumber<uint64_t>(text.substr(0, digits_end)));
  static constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"", 1},
      {"Ki", 1ull << 10},
      {"Mi", 1ull << 20},
      {"Gi", 1ull << 30},
      {"Ti", 1ull << 40},
      {"K", 1000},
      {"M", 1000000},
      {"G", 1000000000},
      {"T", 1000000000000}};
  for (const auto& [name, unit] : kUnits) {
    if (suffix != name) continue;
    const std::optional<uint64_t> bytes = CheckedMul(count, unit);
    if (!bytes) return InvalidArgument("`{}` bytes is out of range", text);
    return *bytes;
  }
  return InvalidArgument(
      "`{}` has a unit other than Ki, Mi, Gi, Ti, K, M, G, T", text);
}

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

OptionSet::Option& OptionSet::Add(std::string name, std::string type,
                                  std::string help) {
  CHECK(Find(name) == nullptr);
  options_.push_back({.name = std::move(name),
                      .help = std::move(help),
                      .type = std::move(type)});
  return options_.back();
}

const OptionSet::Option* OptionSet::Find(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

OptionSet::Option* OptionSet::Find(std::string_view name) {
  return const_cast<Option*>(std::as_const(*this).Find(name));
}

void OptionSet::AddString(std::string name, std::string& target,
                          std::string help) {
  Option& option = Add(std::move(name), std::string(kText), std::move(help));
  option.set = [&target](const std::string& text) {
    target = text;
    return OkStatus();
  };
  option.values = [&target] { return std::vector{target}; };
}

void OptionSet::AddChoice(std::string name, std::string& target,
                          std::vector<std::string> choices, std::string help) {
  std::string type;
  for (const std::string& choice : choices)
    type += (type.empty() ? "" : "|") + choice;
  Option& option = Add(std::move(name), type, std::move(help));
  option.set = [&target, choices, type](const std::string& text) {
    if (std::ranges::find(choices, text) == choices.end())
      return InvalidArgument("`{}` is none of {}", text, type);
    target = text;
    return OkStatus();
  };
  option.values = [&target] { return std::vector{target}; };
}

void OptionSet::AddInt(std::string name, int64_t& target, IntRange range,
                       std::string help) {
  Option& option = Add(std::move(name), "INT", std::move(help));
  option.set = [&target, range](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(const int64_t value, ParseNumber<int64_t>(text));
    if (value < range.min || value > range.max)
      return InvalidArgument("{} is not within {} to {}", value, range.min,
                             range.max);
    target = value;
    return OkStatus();
  };
  option.values = [&target] { return std::vector{std::to_string(target)}; };
}

void OptionSet::AddDouble(std::string name, double& target, DoubleRange range,
                          std::string help) {
  Option& option = Add(std::move(name), "NUMBER", std::move(help));
  option.set = [&target, range](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(const double value, ParseNumber<double>(text));
    if (!std::isfinite(value) || value < range.min || value > range.max)
      return InvalidArgument("{} is not within {} to {}", text, range.min,
                             range.max);
    target = value;
    return OkStatus();
  };
  option.values = [&target] { return std::vector{fmt::format("{}", target)}; };
}

void OptionSet::AddBool(std::string name, bool& target, std::string help) {
  Option& option = Add(std::move(name), "", std::move(help));
  option.is_flag = true;
  option.set = [&target](const std::string& text) {
    if (text != "true" && text != "false")
      return InvalidArgument("`{}` is neither true nor false", text);
    target = text == "true";
    return OkStatus();
  };
  option.values = [&target] {
    return std::vector<std::string>{target ? "true" : "false"};
  };
}

void OptionSet::AddStrings(std::string name, std::vector<std::string>& target,
                           std::string help) {
  Option& option = Add(std::move(name), "TEXT …", std::move(help));
  option.is_list = true;
  option.set = [&target](const std::string& text) {
    target.push_back(text);
    return OkStatus();
  };
  option.clear = [&target] { target.clear(); };
  option.values = [&target] { return target; };
}

void OptionSet::AddBytes(std::string name, uint64_t& target, IntRange range,
                         std::string help) {
  Option& option = Add(std::move(name), "BYTES", std::move(help));
  option.set = [&target, range](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(const uint64_t value, ParseBytes(text));
    if (value < static_cast<uint64_t>(range.min) ||
        value > static_cast<uint64_t>(range.max))
      return InvalidArgument("{} is not within {} to {} bytes", text, range.min,
                             range.max);
    target = value;
    return OkStatus();
  };
  option.values = [&target] { return std::vector{std::to_string(target)}; };
}

void OptionSet::AddPositional(std::string name,
                              std::vector<std::string>& target,
                              size_t max_count, std::string help) {
  positional_name_ = std::move(name);
  positional_help_ = std::move(help);
  positional_ = &target;
  positional_max_ = max_count;
}

StatusOr<OptionSet::Outcome> OptionSet::Parse(int argc,
                                              const char* const* argv) {
  std::optional<std::string> config_path, answer;
  RETURN_IF_ERROR(ApplyFlags(argc, argv, config_path, answer));
  if (config_path) RETURN_IF_ERROR(ApplyFile(*config_path));
  if (!answer) return Outcome::kRun;
  std::fputs((*answer == "print" ? Effective() : *answer).c_str(), stdout);
  return Outcome::kExit;
}

Status OptionSet::ApplyFlags(int argc, const char* const* argv,
                             std::optional<std::string>& config_path,
                             std::optional<std::string>& answer) {
  CLI::App app(description_, program_);
  app.set_help_flag();
  bool help = false, version = false, print = false;
  app.add_flag("--help,-h", help);
  app.add_flag("--version", version);
  app.add_flag("--print-config", print);
  std::string path;
  const CLI::Option* config = app.add_option("--config", path);
  std::vector<std::vector<std::string>> values(options_.size());
  std::vector<CLI::Option*> parsed(options_.size());
  for (size_t i = 0; i < options_.size(); ++i) {
    const std::string flag = "--" + options_[i].name;
    if (options_[i].is_flag) {
      // A value only behind `=`: what follows a bare flag is not its own.
      parsed[i] = app.add_flag(flag);
      continue;
    }
    // One value an occurrence, so that a list never swallows what follows it.
    parsed[i] = app.add_option(flag, values[i]);
    parsed[i]->type_size(1)->allow_extra_args(false);
  }
  std::vector<std::string> positional;
  if (positional_ != nullptr)
    app.add_option("positional", positional)
        ->expected(0, static_cast<int>(positional_max_));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("{} (see {} --help)", error.what(), program_);
  }
  for (size_t i = 0; i < options_.size(); ++i) {
    if (parsed[i]->count() == 0) continue;
    Option& option = options_[i];
    if (!option.is_list && parsed[i]->count() > 1)
      return InvalidArgument("--{}: given more than once", option.name);
    option.was_set = true;
    if (option.is_list) option.clear();
    for (const std::string& value : parsed[i]->results())
      RETURN_IF_ERROR(Annotate(option.set(value), "--" + option.name));
  }
  if (positional_ != nullptr) *positional_ = std::move(positional);
  if (config->count() > 0) config_path = path;
  if (help) {
    answer = Help();
  } else if (version) {
    answer = fmt::format("{} {}\n", program_, kVersion);
  } else if (print) {
    answer = "print";
  }
  return OkStatus();
}

Status OptionSet::ApplyFile(const std::string& path) {
  // Opening a folder and reading nothing from it would pass for an empty file.
  if (std::error_code error; std::filesystem::is_directory(path, error))
    return InvalidArgument("--config: {} is a folder", path);
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    return NotFound("--config: cannot read {}", path);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}: {}", path, error.what());
  }
  if (root.IsNull()) return OkStatus();
  if (!root.IsMap()) return InvalidArgument("{}: not a map of options", path);
  std::vector<std::string> seen;
  for (const auto& entry : root) {
    const int line = entry.first.Mark().line + 1;
    if (!entry.first.IsScalar())
      return InvalidArgument("{}:{}: a key is not a plain name", path, line);
    const std::string name = entry.first.Scalar();
    const std::string place = fmt::format("{}:{}: {}", path, line, name);
    Option* option = Find(name);
    if (option == nullptr)
      return InvalidArgument("{}: unknown option of {}", place, program_);
    if (std::ranges::find(seen, name) != seen.end())
      return InvalidArgument("{}: given twice", place);
    seen.push_back(name);
    if (option->was_set) continue;
    const YAML::Node& value = entry.second;
    if (option->is_list ? !value.IsSequence() : !value.IsScalar())
      return InvalidArgument("{}: must be {}", place,
                             option->is_list ? "a list" : "a single value");
    if (option->is_list) {
      option->clear();
      for (const YAML::Node& item : value) {
        if (!item.IsScalar())
          return InvalidArgument("{}: an item is not a single value", place);
        RETURN_IF_ERROR(Annotate(option->set(item.Scalar()), place));
      }
    } else {
      RETURN_IF_ERROR(Annotate(option->set(value.Scalar()), place));
    }
    option->was_set = true;
  }
  return OkStatus();
}

bool OptionSet::WasSet(std::string_view name) const {
  const Option* const found = Find(name);
  return found != nullptr && found->was_set;
}

std::string OptionSet::Effective() const {
  std::string text;
  for (const Option& option : options_)
    text += fmt::format("{}: {}\n", option.name, option.Show());
  return text;
}

std::string OptionSet::ConfigFor(const OptionSet& other) const {
  std::string text;
  for (const Option& option : options_)
    if (other.Find(option.name) != nullptr)
      text += fmt::format("{}: {}\n", option.name,
                          ToYaml(option.values(), option.is_list));
  return text;
}

std::string OptionSet::Help() const {
  std::string text =
      fmt::format("{}\n\nUsage: {} [options]", description_, program_);
  if (positional_ != nullptr)
    text += fmt::format(" [{}]\n\n  {}: {}", positional_name_, positional_name_,
                        positional_help_);
  text += "\n\nOptions (flag = YAML key in the --config file = Helm value):\n";
  const auto row = [&text](const std::string& left, const std::string& help) {
    text += fmt::format("  {:<34} {}\n", left, help);
  };
  for (const Option& option : options_) {
    const std::vector<std::string> values = option.values();
    const bool has_default = std::ranges::any_of(
        values, [](const std::string& value) { return !value.empty(); });
    row(fmt::format("--{} {}", option.name, option.type),
        has_default && !option.IsSecret()
            ? fmt::format("{} [{}]", option.help, fmt::join(values, ", "))
            : option.help);
  }
  row("--config FILE", "YAML file of these options; flags win");
  row("--print-config", "print the options in force and exit");
  row("--version", "print the version and exit");
  row("--help, -h", "print this and exit");
  return text;
}

}  // namespace tidepool
