#!/usr/bin/env python3
"""Writes what the `tokenizers` package makes of random strings, as cases for
the tokenizer's golden test.

One JSON object a line: text `t`; its ids `i` with special tokens, `p` with the
text of special tokens as plain text and none added; `d`, `i` decoded without
special tokens; random ids `r`, decoded with (`rd`) and without (`rs`) special
tokens.

Usage: tokenizer_expectations.py TOKENIZER_JSON COUNT [SEED] > cases.jsonl
"""

import json
import random
import sys

from tokenizers import Tokenizer

WORDS = """the of and to in a is that for it as was with be by on not he I've
don't we'll you're he'd she's I'M WE'LL THEY'RE O'Neill 'tis rock'n'roll can't
Hello world def return self.x = foo(bar) { } ; // /* */ #include <vector> int
main() std::vector<int32_t> x->y a_b_c camelCase SNAKE_CASE 0xFF 1.5e-3 100%
1234567 3.14159 $1,000.00 2024-01-31 12:34:56 user@example.com
https://example.org/path?q=1&r=2 naïve café Ünïcödé façade Straße ŒUVRE
""".split()

RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0x00, 0x1F), (0x7F, 0xA0), (0xA1, 0xFF),
    (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F),
    (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1100, 0x11FF), (0x13A0, 0x13FF),
    (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
    (0x2100, 0x218F), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x27BF),
    (0x3000, 0x303F), (0x3040, 0x30FF), (0x3130, 0x318F), (0x3300, 0x33FF),
    (0x4E00, 0x9FFF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFB00, 0xFB4F), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF),
    (0x10000, 0x100FF), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF),
    (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF),
    (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF), (0xE0000, 0xE007F),
    (0x0, 0xD7FF), (0xE000, 0x10FFFF),
]
SPACES = [" ", " ", " ", "\n", "\t", "\r", "\r\n", "\x0b", "\x0c", "\x85",
          "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000", "\u200b",
          "\u2581", "\u180e", "\ufeff"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE",
                "'Ve", "'M", "'lL", "'D", "'\u017f", "'", "\u2019s", "'x",
                "'r", "'l", "'v"]


class Generator:
    def __init__(self, tokenizer, seed):
        self.random = random.Random(seed)
        self.added = [t.content for t in
                      tokenizer.get_added_tokens_decoder().values()]

    def character(self):
        low, high = self.random.choice(RANGES)
        return chr(self.random.randint(low, high))

    def run(self):
        low, high = self.random.choice(RANGES)
        return "".join(chr(self.random.randint(low, high))
                       for _ in range(self.random.randint(1, 12)))

    def piece(self):
        r = self.random
        kind = r.randint(0, 11)
        if kind <= 2:
            return r.choice(["", " "]) + r.choice(WORDS)
        if kind == 3:
            return "".join(r.choice(SPACES) for _ in range(r.randint(1, 6)))
        if kind == 4:
            return r.choice([" ", "\n", "\t"]) * r.randint(1, 20)
        if kind == 5:
            return r.choice(["", "x"]) + r.choice(CONTRACTIONS)
        if kind == 6:
            return "".join(r.choice("0123456789") for _ in
                           range(r.randint(1, 9)))
        if kind == 7:
            return r.choice("aeiounrst") + "".join(
                chr(r.randint(0x300, 0x36F)) for _ in range(r.randint(1, 4)))
        if kind == 8 and self.added:
            token = r.choice(self.added)
            if r.random() < 0.2:
                token = token[:r.randint(1, len(token))]
            return r.choice(["", " ", "  "]) + token + r.choice(["", " "])
        if kind == 9:
            return "".join(r.choice("!?.,;:-_#$%&*+/<=>@[]^`{|}~()\"\\'") for _
                           in range(r.randint(1, 8)))
        return self.run() if kind == 10 else self.character()

    def text(self):
        text = "".join(self.piece() for _ in range(self.random.choice(
            [1, 2, 3, 5, 8, 13, 21])))
        return "".join(c for c in text if not "\ud800" <= c <= "\udfff")


def main():
    path, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    tokenizer = Tokenizer.from_file(path)
    plain = Tokenizer.from_file(path)
    plain.encode_special_tokens = True
    generator = Generator(tokenizer, seed)
    size = tokenizer.get_vocab_size()
    for index in range(count):
        text = "" if index == 0 else generator.text()
        ids = tokenizer.encode(text).ids
        random_ids = [generator.random.randrange(size + 2)
                      for _ in range(generator.random.randint(0, 12))]
        if index % 2 == 0:  # what a model emits is mostly text
            random_ids = ids[:6] + random_ids[:4] + ids[6:]
        if index % 7 == 0:
            generator.random.shuffle(random_ids)
        print(json.dumps({
            "t": text, "i": ids,
            "p": plain.encode(text, add_special_tokens=False).ids,
            "d": tokenizer.decode(ids, skip_special_tokens=True),
            "r": random_ids,
            "rd": tokenizer.decode(random_ids, skip_special_tokens=False),
            "rs": tokenizer.decode(random_ids, skip_special_tokens=True),
        }))


if __name__ == "__main__":
    main()
