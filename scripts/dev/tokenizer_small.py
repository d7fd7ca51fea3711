#!/usr/bin/env python3
"""Trains the small tokenizers of dataplane/model/testdata/tokenizer with the
`tokenizers` package, one for each family of files that is supported.

Usage: tokenizer_small.py DIRECTORY
"""

import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+",
    r"\s+(?!\S)", r"\s+"])

CORPUS = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind at all.
Once upon a time there was a little girl who lived in a big house with her
mother and her father. She said: "I'll be there, don't worry, we've got time!"
It was 1984; there were 1,234,567 people, 42 of them had read 3.14159 books.
A tokenizer turns text into numbers; the numbers go through the model, and the
model's numbers become text again. THE END. ARE YOU SURE? WE'RE SURE.
def main(argc: int, argv: list) -> int:
    for i in range(10):
        print(f"{i}: {argv[i]}")  # comment
    return 0
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  /* dot product */
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
Portez ce vieux whisky au juge blond qui fume. Où êtes-vous né, à l'école?
El veloz murciélago hindú comía feliz cardillo y kiwi. ¿Dónde está mañana?
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. שלום עולם مرحبا بالعالم नमस्ते दुनिया
我们今天去北京的大学学习中文。 いろはにほへと ちりぬるを カタカナ 안녕하세요 세계
Tiếng Việt có nhiều dấu thanh: ngã, hỏi, sắc, huyền, nặng. 😀 👍🏽 👨‍👩‍👧 ❤️ →
""".split("\n")

SPECIAL = dict(special=True, normalized=False)


def train(tokenizer, size, special=(), alphabet=()):
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=list(special),
        initial_alphabet=list(alphabet))
    tokenizer.train_from_iterator([line + "\n" for line in CORPUS] * 2, trainer)
    return tokenizer


def byte_level(pre_tokenizer, size=700):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, size,
                 alphabet=pre_tokenizers.ByteLevel.alphabet())


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", **SPECIAL)])
    return tokenizer


def llama3():
    tokenizer = byte_level(split(LLAMA3))
    tokenizer.add_special_tokens([
        AddedToken(f"<|{name}|>", **SPECIAL) for name in
        ("begin_of_text", "end_of_text", "start_header_id", "end_header_id",
         "eot_id")])
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
            special_tokens=[(begin, tokenizer.token_to_id(begin))])])
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # A token that its merges do not make, so that ignoring them shows.
    model = data["model"]
    model["merges"] = [m for m in model["merges"] if "".join(m) != "Ġthe"]
    return Tokenizer.from_str(json.dumps(data))


def qwen2():
    tokenizer = byte_level(split(QWEN2))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([
        AddedToken(name, **SPECIAL) for name in
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False),
                          AddedToken("</think>", normalized=False)])
    return tokenizer


def with_bytes(tokenizer, unk):
    """The same with the tokens of a SentencePiece file in front."""
    data = json.loads(tokenizer.to_str())
    model = data["model"]
    front = [unk, "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    learned = sorted(model["vocab"], key=model["vocab"].get)
    names = front + [token for token in learned if token not in front]
    model["vocab"] = {token: i for i, token in enumerate(names)}
    model.update(unk_token=unk, fuse_unk=True, byte_fallback=True)
    data["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([AddedToken(t, **SPECIAL) for t in front[:3]])
    return tokenizer


def sentencepiece():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = with_bytes(train(tokenizer, 600), "<unk>")
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def metaspace():
    """Metaspace as pre-tokenizer and decoder, unknown characters not fused."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    train(tokenizer, 500, ["<unk>"])
    tokenizer.add_special_tokens([AddedToken("<sep>", **SPECIAL)])
    data = json.loads(tokenizer.to_str())
    # Leave some characters of the corpus unknown, and use the older format.
    model = data["model"]
    model["merges"] = [" ".join(m) for m in model["merges"]]
    return Tokenizer.from_str(json.dumps(data))


def o200k():
    tokenizer = byte_level(split(O200K))
    tokenizer.add_special_tokens([AddedToken("<|endofprompt|>", **SPECIAL)])
    return tokenizer


def options():
    """Everything else: normalizers, splits, and all kinds of added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Replace(Regex(r"\s{3,}"), "  "),
        normalizers.Replace("...", "…")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("--", "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[A-Fa-f]{2}|<\w"), "merged_with_next"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 600, alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens([
        AddedToken("[LEFT]", lstrip=True, normalized=False),
        AddedToken("[RIGHT]", rstrip=True, normalized=False),
        AddedToken("[BOTH]", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("Ünïcode", normalized=True),
        AddedToken("TWO Words", normalized=True, rstrip=True),
        AddedToken("[LE", normalized=False),
        AddedToken("été", single_word=True, lstrip=True, normalized=True)])
    tokenizer.add_special_tokens([
        AddedToken("[MASK]", special=True, lstrip=True, normalized=False),
        AddedToken("<End>", special=True, normalized=True)])
    return tokenizer


def words():
    """Splits that drop text, and no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace(),
        pre_tokenizers.Split("e", "removed"),
        pre_tokenizers.Split(Regex(r"^.|[^\s\d]\d$"), "isolated", invert=True),
        pre_tokenizers.Digits(individual_digits=True)])
    return train(tokenizer, 400, ["[UNK]"])


def main():
    target = pathlib.Path(sys.argv[1])
    for make in (gpt2, llama3, qwen2, sentencepiece, metaspace, o200k, options,
                 words):
        folder = target / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        make().save(str(folder / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
