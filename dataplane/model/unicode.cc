#include "dataplane/model/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <ranges>
#include <vector>

#include "dataplane/base/check.h"

namespace tidepool::model::internal {
namespace {

struct LowerException {
  char32_t from;
  char32_t to[3];  // up to the first zero
};

#include "dataplane/model/unicode_tables.inc"

constexpr int kFlagBits = 9;
constexpr uint32_t kFlagMask = (1 << kFlagBits) - 1;

// The length of the valid character at the start of `text` (not empty), or 0
// with `*bad` set to the length of the maximal part of an ill-formed one;
// `*open` tells whether more bytes could have completed that part.
size_t CharBytes(std::string_view text, size_t* bad, bool* open) {
  const auto byte = [text](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char lead = byte(0);
  *bad = 1;
  *open = false;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and what is beyond
  // U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      *open = true;
      *bad = i;
      return 0;
    }
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high
                             : IsContinuationByte(text[i]);
    if (!fits) {
      *bad = i;
      return 0;
    }
  }
  return length;
}

size_t AsciiPrefix(std::string_view text) {
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t chunk;
    std::memcpy(&chunk, text.data() + at, sizeof(chunk));
    if ((chunk & 0x8080808080808080u) != 0) break;
  }
  while (at < text.size() && static_cast<signed char>(text[at]) >= 0) ++at;
  return at;
}

const std::map<char32_t, std::u32string>& LowerExceptions() {
  static const auto* map = [] {
    auto* exceptions = new std::map<char32_t, std::u32string>;
    for (const LowerException& exception : kLowerExceptions) {
      std::u32string& to = (*exceptions)[exception.from];
      for (const char32_t c : exception.to) {
        if (c != 0) to.push_back(c);
      }
    }
    return exceptions;
  }();
  return *map;
}

utf8proc_option_t Options(int bits) {
  return static_cast<utf8proc_option_t>(bits);
}

utf8proc_option_t Utf8procOptions(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return Options(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return Options(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return Options(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      return Options(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return Options(0);
}

void AppendDecomposed(utf8proc_option_t options, std::string_view text,
                      std::vector<int32_t>& points) {
  constexpr utf8proc_ssize_t kPointsMax = 32;  // U+FDFA becomes 18
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = DecodeChar(text.data() + at);
    at += c.bytes;
    const size_t start = points.size();
    points.resize(start + kPointsMax);
    int unused = 0;  // of an option that is not set
    const utf8proc_ssize_t length =
        utf8proc_decompose_char(static_cast<int32_t>(c.value), &points[start],
                                kPointsMax, options, &unused);
    CHECK(length >= 0 && length <= kPointsMax);
    points.resize(start + static_cast<size_t>(length));
  }
}

// Brings every run of combining marks into canonical order. utf8proc would do
// so as it decomposes, but in time quadratic in the run: minutes for 100 KiB.
void OrderMarks(std::vector<int32_t>& points) {
  const auto mark_class = [](int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  const auto is_mark = [&](int32_t point) { return mark_class(point) != 0; };
  const auto by_class = [&](int32_t a, int32_t b) {
    return mark_class(a) < mark_class(b);
  };
  for (auto start = points.begin(); start != points.end();) {
    start = std::find_if(start, points.end(), is_mark);
    const auto end = std::find_if_not(start, points.end(), is_mark);
    if (!std::is_sorted(start, end, by_class)) {
      std::stable_sort(start, end, by_class);
    }
    start = end;
  }
}

// Normalizes a stretch of text without barriers; `points` is kept between
// calls.
void AppendNormalized(NormalForm form, std::string_view text,
                      std::vector<int32_t>& points, std::string& out) {
  const utf8proc_option_t options = Utf8procOptions(form);
  points.clear();
  AppendDecomposed(options, text, points);
  OrderMarks(points);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  CHECK(length >= 0);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(points[static_cast<size_t>(i)]), out);
  }
}

}  // namespace

namespace unicode_tables {

FlagTable::FlagTable() {
  size_t run = 0;
  for (size_t block = 0; block < kBlocks; ++block) {
    std::vector<uint16_t> flags(256);
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t c = static_cast<uint32_t>(block) << 8 | i;
      while (run + 1 < std::size(kFlagRuns) &&
             kFlagRuns[run + 1] >> kFlagBits <= c) {
        ++run;
      }
      flags[i] = static_cast<uint16_t>(kFlagRuns[run] & kFlagMask);
    }
    blocks[block] = storage.insert(std::move(flags)).first->data();
  }
}

const FlagTable& Flags() {
  static const auto* table = new FlagTable;
  return *table;
}

}  // namespace unicode_tables

DecodedChar DecodeCharBefore(const char* end) {
  do {
    --end;
  } while (IsContinuationByte(*end));
  return DecodeChar(end);
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto put = [&out](char32_t byte) {
    out.push_back(static_cast<char>(byte));
  };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<signed char>(text[at]) >= 0) {
      at += AsciiPrefix(text.substr(at));
      continue;
    }
    size_t bad;
    bool open;
    const size_t length = CharBytes(text.substr(at), &bad, &open);
    if (length == 0) break;
    at += length;
  }
  return at;
}

size_t IncompleteSuffixBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if (IsContinuationByte(tail[0])) continue;
    size_t bad;
    bool open;
    const bool whole = CharBytes(tail, &bad, &open) != 0;
    return !whole && open ? back : 0;
  }
  return 0;
}

void AppendLossy(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    size_t bad;
    bool open;
    CharBytes(text, &bad, &open);
    AppendUtf8(kReplacementCharacter, out);
    text.remove_prefix(bad);
  }
}

void AppendLowercase(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c));
    return;
  }
  const auto exception = LowerExceptions().find(c);
  if (exception == LowerExceptions().end()) {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))),
               out);
    return;
  }
  for (const char32_t lower : exception->second) AppendUtf8(lower, out);
}

bool IsCertainlyNormal(NormalForm form, std::string_view text) {
  for (size_t at = AsciiPrefix(text); at < text.size();
       at += AsciiPrefix(text.substr(at))) {
    if (form != NormalForm::kNfc) return false;
    const DecodedChar c = DecodeChar(text.data() + at);
    if ((FlagsOf(c.value) & kNfcActive) != 0) return false;
    at += c.bytes;
  }
  return true;
}

std::string Normalize(NormalForm form, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> points;
  // For NFC a starter that joins nothing before it begins a stretch of its
  // own, so that only the neighbourhoods of active characters go the slow way;
  // the other forms take all between two barriers.
  const bool by_stretch = form == NormalForm::kNfc;
  size_t copied = 0;   // what is before is in `out`
  size_t starter = 0;  // where a stretch may begin
  bool active = !by_stretch;
  const auto flush = [&](size_t end) {
    const std::string_view stretch = text.substr(copied, end - copied);
    if (active) {
      AppendNormalized(form, stretch, points, out);
    } else {
      out.append(stretch);
    }
    copied = end;
    active = !by_stretch;
  };
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = DecodeChar(text.data() + at);
    const uint16_t flags = FlagsOf(c.value);
    if ((flags & kNormalizationBarrier) != 0) {
      flush(at);
      out.append(text.substr(at, c.bytes));
      copied = starter = at + c.bytes;
    } else if (by_stretch && (flags & kNfcActive) == 0) {
      if (active) flush(at);
      starter = at;
    } else if (!active) {
      flush(starter);
      active = true;
    }
    at += c.bytes;
  }
  flush(text.size());
  return out;
}

}  // namespace tidepool::model::internal
