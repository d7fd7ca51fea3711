#include "dataplane/model/pretokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <utility>

#include "dataplane/model/pretokenizer_match.h"
#include "dataplane/model/pretokenizer_split.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {

class Pretokenizer::Stage {
 public:
  virtual ~Stage() = default;
  virtual Status Run(const Piece& piece, PieceSink sink) const = 0;
};

namespace {

using Stage = Pretokenizer::Stage;

Status Give(PieceSink sink, const Piece& piece) { return sink({&piece, 1}); }

class KnownSplitStage : public Stage {
 public:
  explicit KnownSplitStage(KnownSplit split) : split_(split) {}

  Status Run(const Piece& piece, PieceSink sink) const override {
    std::array<Piece, kPieceBatch> batch;
    size_t count = 0;
    for (size_t start = 0; start < piece.text.size();) {
      const size_t end = split_.PieceEnd(piece.text, start);
      batch[count++] = piece.Part(start, end);
      start = end;
      if (count < kPieceBatch && start < piece.text.size()) continue;
      RETURN_IF_ERROR(sink(std::span(batch).first(count)));
      count = 0;
    }
    return OkStatus();
  }

 private:
  KnownSplit split_;
};

class MatcherStage : public Stage {
 public:
  MatcherStage(Matcher matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}

  Status Run(const Piece& piece, PieceSink sink) const override {
    const auto give = [&](size_t start, size_t end) {
      return Give(sink, piece.Part(start, end));
    };
    Splitter splitter(behavior_, give);
    RETURN_IF_ERROR(matcher_.ForEach(
        piece.text, [&](size_t start, size_t end, bool matched) {
          return splitter.Add(start, end, matched != invert_);
        }));
    return splitter.Finish();
  }

 private:
  Matcher matcher_;
  SplitBehavior behavior_;
  bool invert_;
};

class CharClassStage : public Stage {
 public:
  explicit CharClassStage(const CharClassStep& step) : step_(step) {}

  Status Run(const Piece& piece, PieceSink sink) const override {
    const auto give = [&](size_t start, size_t end) {
      return Give(sink, piece.Part(start, end));
    };
    Splitter splitter(step_.behavior, give);
    size_t between = 0;  // where the characters outside the class start
    for (size_t at = 0; at < piece.text.size();) {
      const DecodedChar c = DecodeChar(piece.text.data() + at);
      const size_t end = at + c.bytes;
      if ((FlagsOf(c.value) & step_.flags) != 0) {
        if (between < at) RETURN_IF_ERROR(splitter.Add(between, at, false));
        RETURN_IF_ERROR(splitter.Add(at, end, true));
        between = end;
      }
      at = end;
    }
    if (between < piece.text.size()) {
      RETURN_IF_ERROR(splitter.Add(between, piece.text.size(), false));
    }
    return splitter.Finish();
  }

 private:
  CharClassStep step_;
};

class WordsStage : public Stage {
 public:
  Status Run(const Piece& piece, PieceSink sink) const override {
    uint16_t kind = kSpace;  // of the run that starts at `start`
    size_t start = 0;
    const auto give = [&](size_t end) {
      if (kind == kSpace || start == end) return OkStatus();
      return Give(sink, piece.Part(start, end));
    };
    for (size_t at = 0; at < piece.text.size();) {
      const DecodedChar c = DecodeChar(piece.text.data() + at);
      const uint16_t next = FlagsOf(c.value) & (kWord | kSpace);
      if (next != kind) {
        RETURN_IF_ERROR(give(at));
        start = at;
        kind = next;
      }
      at += c.bytes;
    }
    return give(piece.text.size());
  }
};

class PrefixSpaceStage : public Stage {
 public:
  Status Run(const Piece& piece, PieceSink sink) const override {
    if (piece.text.starts_with(' ')) return Give(sink, piece);
    std::string text;
    text.reserve(piece.text.size() + 1);
    text.append(" ").append(piece.text);
    return Give(sink, {text, text.size(), piece.first});
  }
};

class MetaspaceStage : public Stage {
 public:
  explicit MetaspaceStage(const MetaspaceStep& step) : step_(step) {}

  Status Run(const Piece& piece, PieceSink sink) const override {
    const bool wanted = step_.scheme == PrependScheme::kAlways ||
                        (step_.scheme == PrependScheme::kFirst && piece.first);
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2);
    if (wanted && !piece.text.starts_with(' ') &&
        !piece.text.starts_with(step_.replacement)) {
      text = step_.replacement;
    }
    for (const char c : piece.text) {
      if (c == ' ') {
        text += step_.replacement;
      } else {
        text.push_back(c);
      }
    }
    const Piece replaced = {text, text.size(), piece.first};
    if (!step_.split) return Give(sink, replaced);
    // Every replacement starts a word.
    for (size_t start = 0; start < text.size();) {
      const size_t from =
          text.compare(start, step_.replacement.size(), step_.replacement) == 0
              ? start + step_.replacement.size()
              : start;
      const size_t end =
          std::min(text.find(step_.replacement, from), text.size());
      RETURN_IF_ERROR(Give(sink, replaced.Part(start, end)));
      start = end;
    }
    return OkStatus();
  }

 private:
  MetaspaceStep step_;
};

StatusOr<std::unique_ptr<Stage>> MakeSplit(const SplitStep& step) {
  // The known patterns match all of a text, so that nothing is between.
  const bool all_pieces =
      step.behavior == SplitBehavior::kIsolated ||
      (step.behavior == SplitBehavior::kRemoved && step.invert);
  if (step.pattern.is_regex && all_pieces) {
    if (const auto known = KnownSplit::Recognize(step.pattern.text)) {
      return std::make_unique<KnownSplitStage>(*known);
    }
  }
  ASSIGN_OR_RETURN(
      Matcher matcher,
      Matcher::Create(step.pattern, "pre_tokenizer.Split.pattern.Regex"));
  return std::make_unique<MatcherStage>(std::move(matcher), step.behavior,
                                        step.invert);
}

}  // namespace

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

StatusOr<std::unique_ptr<Pretokenizer>> Pretokenizer::Create(
    const std::vector<PretokenizerStep>& steps) {
  std::unique_ptr<Pretokenizer> result(new Pretokenizer);
  auto& stages = result->stages_;
  for (const PretokenizerStep& step : steps) {
    if (result->form_ == WordForm::kBytes) {
      return Unimplemented(
          "tokenizer.json: pre_tokenizer: steps after ByteLevel are not "
          "supported");
    }
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, MakeSplit(*split));
      stages.push_back(std::move(stage));
    } else if (const auto* chars = std::get_if<CharClassStep>(&step)) {
      stages.push_back(std::make_unique<CharClassStage>(*chars));
    } else if (std::holds_alternative<WordsStep>(step)) {
      stages.push_back(std::make_unique<WordsStage>());
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&step)) {
      stages.push_back(std::make_unique<MetaspaceStage>(*metaspace));
    } else {
      const auto& byte_level = std::get<ByteLevelStep>(step);
      if (byte_level.add_prefix_space) {
        stages.push_back(std::make_unique<PrefixSpaceStage>());
      }
      if (byte_level.use_regex) {
        stages.push_back(std::make_unique<KnownSplitStage>(KnownSplit::Gpt2()));
      }
      result->form_ = WordForm::kBytes;
    }
  }
  return result;
}

Status Pretokenizer::Run(const Piece& piece, PieceSink sink) const {
  return RunFrom(0, piece, sink);
}

Status Pretokenizer::RunFrom(size_t stage, const Piece& piece,
                             PieceSink sink) const {
  if (stage == stages_.size()) return Give(sink, piece);
  if (stage + 1 == stages_.size()) return stages_[stage]->Run(piece, sink);
  const auto next = [&](std::span<const Piece> parts) {
    for (const Piece& part : parts) {
      RETURN_IF_ERROR(RunFrom(stage + 1, part, sink));
    }
    return OkStatus();
  };
  return stages_[stage]->Run(piece, next);
}

}  // namespace tidepool::model::internal
