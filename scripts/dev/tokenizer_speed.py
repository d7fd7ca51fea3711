#!/usr/bin/env python3
"""Encoding speed of model_tokenizer_bench and of the `tokenizers` package on
the same texts, one thread, CPU time: cold is the first text of a process, warm
the same text again.

Usage: tokenizer_speed.py BENCH_PROGRAM TOKENIZER_JSON [TEXT_FILE...]
"""

import glob
import json
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

WARM_ROUNDS = 5
CODE_BYTES_MAX = 2_000_000


def default_texts(directory):
    """The documentation and the source of Python's standard library."""
    english = pathlib.Path(directory, "english.txt")
    english.write_text("\n\n".join(pydoc_data.topics.topics.values()))
    code = pathlib.Path(directory, "code.txt")
    sources = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__),
                                            "*.py")))
    code.write_text("".join(
        pathlib.Path(source).read_text(errors="ignore")
        for source in sources)[:CODE_BYTES_MAX])
    return [english, code]


def peer(tokenizer_json, text):
    def seconds():
        start = time.process_time()
        tokenizer.encode(text)
        return time.process_time() - start

    tokenizer = Tokenizer.from_file(tokenizer_json)
    cold = seconds()
    return cold, min(seconds() for _ in range(WARM_ROUNDS))


def ours(program, tokenizer_json, text_file):
    output = subprocess.run(
        [program, "--benchmark_filter=BM_Encode(Cold|Warm)",
         "--benchmark_format=json", "--benchmark_min_time=0.5"],
        env=dict(os.environ, TIDEPOOL_TOKENIZER=tokenizer_json,
                 TIDEPOOL_TEXT=str(text_file)),
        check=True, capture_output=True, text=True).stdout
    runs = json.loads(output)["benchmarks"]  # milliseconds
    return [run["cpu_time"] / 1e3 for run in runs]


def main():
    program, tokenizer_json = sys.argv[1:3]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as directory:
        for text_file in sys.argv[3:] or default_texts(directory):
            text = pathlib.Path(text_file).read_text()
            megabytes = len(text.encode()) / 1e6
            for kind, mine, theirs in zip(
                    ("cold", "warm"),
                    ours(program, tokenizer_json, text_file),
                    peer(tokenizer_json, text)):
                print(f"{tokenizer_json} {pathlib.Path(text_file).name} {kind}:"
                      f" {megabytes / mine:.1f} MB/s, tokenizers"
                      f" {megabytes / theirs:.2f} MB/s,"
                      f" ratio {theirs / mine:.1f}")


if __name__ == "__main__":
    main()
