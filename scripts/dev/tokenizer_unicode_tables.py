#!/usr/bin/env python3
"""Writes dataplane/model/unicode_tables.inc.

What the classes of a character are is asked of the `tokenizers` package
itself, one code point at a time, since its parts follow different versions of
Unicode. Needs `pip install tokenizers` and libutf8proc.

Usage: tokenizer_unicode_tables.py > dataplane/model/unicode_tables.inc
"""

import ctypes
import ctypes.util
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

# In the order of `CharFlag` of unicode.h.
FLAGS = ["LETTER", "NUMBER", "SPACE", "WORD", "PUNCTUATION", "NUMERIC", "MARK",
         "NFC_ACTIVE", "NORMALIZATION_BARRIER"]


def matching(pattern):
    strip = normalizers.Replace(Regex(pattern), "")
    return {c for c in CODE_POINTS if strip.normalize_str(chr(c)) == ""}


def word_characters():
    split = pre_tokenizers.Whitespace().pre_tokenize_str
    words = set()
    for c in CODE_POINTS:
        pieces = split("a" + chr(c))
        if pieces[0][0] == "a" + chr(c):
            words.add(c)
    return words


def split_off(pre_tokenizer):
    split = pre_tokenizer.pre_tokenize_str
    return {c for c in CODE_POINTS if len(split("a" + chr(c) + "a")) == 3}


def marks():
    strip = normalizers.StripAccents()
    return {c for c in CODE_POINTS if strip.normalize_str(chr(c)) == ""}


def nfc_active(library):
    """Whatever is not a starter that NFC neither changes nor joins to what
    precedes it."""
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    active = set()
    for c in CODE_POINTS:
        if library.utf8proc_get_property(c).contents.combining_class:
            active.add(c)
        if nfc.normalize_str(chr(c)) != chr(c):
            active.add(c)
        active.update(ord(d) for d in nfd.normalize_str(chr(c))[1:])
    return active


def normalization_barrier(library):
    """Characters newer than the Unicode of the package's normalizer, for which
    they are inert, and those that no version here knows."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    barrier = set()
    for c in CODE_POINTS:
        text = chr(c)
        if unicodedata.category(text) == "Cn":
            barrier.add(c)
        for ours, theirs in (("NFD", nfd), ("NFKD", nfkd)):
            decomposed = utf8proc_normal(library, ours, text)
            if decomposed != theirs.normalize_str(text):
                barrier.add(c)
                if ours == "NFD":
                    barrier.update(map(ord, decomposed))
        ccc = library.utf8proc_get_property(c).contents.combining_class
        # Between two marks of known class a mark moves if it has a class.
        before, after = "a" + text + "\u0334", "a\u0345" + text
        moves = (nfd.normalize_str(before)[1:2] == "\u0334"
                 or nfd.normalize_str(after)[1:2] == text)
        if ccc > 1 and ccc != 240 and not moves and \
                nfd.normalize_str(text) == text:
            barrier.add(c)
    return barrier


class Property(ctypes.Structure):
    _fields_ = [("category", ctypes.c_int16),
                ("combining_class", ctypes.c_int16)]


def load_utf8proc():
    library = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    library.utf8proc_get_property.restype = ctypes.POINTER(Property)
    for form in ("NFD", "NFKD"):
        getattr(library, "utf8proc_" + form).restype = ctypes.c_void_p
    library.utf8proc_tolower.restype = ctypes.c_int32
    return library


def utf8proc_normal(library, form, text):
    data = text.encode()
    if data == b"\0":
        return text
    pointer = getattr(library, "utf8proc_" + form)(data)
    result = ctypes.string_at(pointer).decode()
    FREE(ctypes.c_void_p(pointer))
    return result


FREE = ctypes.CDLL(None).free
FREE.restype = None


def lower_exceptions(library):
    lower = normalizers.Lowercase()
    for c in CODE_POINTS:
        theirs = lower.normalize_str(chr(c))
        if theirs != chr(library.utf8proc_tolower(c)):
            yield c, theirs


def main():
    library = load_utf8proc()
    sets = [matching(r"\p{L}"), matching(r"\p{N}"), matching(r"\s"),
            word_characters(), split_off(pre_tokenizers.Punctuation()),
            split_off(pre_tokenizers.Digits(True)), marks(),
            nfc_active(library), normalization_barrier(library)]
    print("// Written by scripts/dev/tokenizer_unicode_tables.py from the "
          f"`tokenizers`\n// package, {tokenizers.__version__}. Bits: "
          + ", ".join(FLAGS[:5]) + ",\n// " + ", ".join(FLAGS[5:]) + ".\n")
    runs, last = [], -1
    for c in range(0x110000):
        flags = sum(1 << i for i, s in enumerate(sets) if c in s)
        if flags != last:
            runs.append(c << len(FLAGS) | flags)
            last = flags
    print(f"// First code point << {len(FLAGS)} | bits of all up to the next "
          "run.\nconstexpr uint32_t kFlagRuns[] = {")
    for i in range(0, len(runs), 7):
        print("    " + " ".join(f"0x{run:x}," for run in runs[i:i + 7]))
    print("};\n")
    print("// Where lowercase is not what utf8proc says.\n"
          "constexpr LowerException kLowerExceptions[] = {")
    for c, lower in lower_exceptions(library):
        print("    {0x%x, {%s}}," % (c, ", ".join(hex(ord(x)) for x in lower)))
    print("};")


if __name__ == "__main__":
    main()
