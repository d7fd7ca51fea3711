"""DESIGN rule 3: a request's tokens and logprobs are bitwise the same however
the fleet is shaped, loaded, or broken. Every shape is compared with one process
that runs the requests alone."""

import os
import random
import signal
import unittest

from fleet import Fleet, run_streams, wait_for

COMMON = ["--model", "demo", "--threads", "1"]
SHAPES = {
    "threads 2": ["--prefill", "0", "--threads", "2"],
    "chunk 16": ["--prefill", "0", "--max-num-batched-tokens", "16",
                 "--max-num-seqs", "16"],
    "chunk 64": ["--prefill", "0", "--max-num-batched-tokens", "64",
                 "--max-num-seqs", "64"],
    "chunk 500": ["--prefill", "0", "--max-num-batched-tokens", "500"],
    "page 16": ["--prefill", "0", "--page-size", "16"],
    "P+D over TCP": ["--transport", "tcp"],
    "P+D over shared memory": ["--transport", "shm"],
    "P+D, page 16, chunk 64": ["--page-size", "16", "--max-num-seqs", "64",
                               "--max-num-batched-tokens", "64"],
    "2P+2D": ["--prefill", "2", "--decode", "2"],
}
STORY = ("Once upon a time there was a little girl named Lily. She loved to "
         "play in the park with her dog Max. One day they found a big red "
         "ball under a tree. ")


def requests(dtype_model="demo"):
    """Prompts of many lengths, greedy and seeded, with logprobs."""
    draw = random.Random(7)
    bodies = []
    for i, length in enumerate([3, 17, 64, 65, 130, 257, 600, 900]):
        prompt = [draw.randrange(4000) for _ in range(length)]
        bodies.append({
            "model": dtype_model, "prompt": prompt, "max_tokens": 40,
            "logprobs": 3, "ignore_eos": True,
            "temperature": 0 if i % 2 else 0.9, "seed": 100 + i,
            "top_p": 0.95, "repetition_penalty": 1.1})
    for i in range(4):
        bodies.append({"model": dtype_model, "prompt": STORY * (1 + i),
                       "max_tokens": 40, "logprobs": 3, "temperature": 0,
                       "ignore_eos": True})
    return bodies


def flags(shape):
    """COMMON with those options replaced that `shape` sets."""
    base = [(COMMON[i], COMMON[i + 1]) for i in range(0, len(COMMON), 2)
            if COMMON[i] not in shape]
    return [item for pair in base for item in pair] + shape


def one_by_one(fleet, bodies):
    return [run_streams(fleet, [body])[0] for body in bodies]


class TokenExactTest(unittest.TestCase):
    dtype = "bfloat16"

    @classmethod
    def setUpClass(cls):
        cls.common = ["--dtype", cls.dtype]
        with Fleet(*cls.common, *flags(["--prefill", "0"])) as alone:
            cls.expected = one_by_one(alone, requests())

    def check(self, results):
        for i, (result, expected) in enumerate(zip(results, self.expected)):
            self.assertEqual(result[0], expected[0], f"tokens of request {i}")
            self.assertEqual(result[1], expected[1], f"logprobs of {i}")
            self.assertEqual(result[2], expected[2])

    def test_every_shape_alone_together_and_again(self):
        for name, shape in SHAPES.items():
            with self.subTest(name), Fleet(*self.common, *flags(shape)) as f:
                self.check(one_by_one(f, requests()))  # alone, cold
                self.check(run_streams(f, requests()))  # batched, prefix hits
                if "P+D over" in name:
                    transport = shape[-1]
                    self.assertIn(f"transport={transport} ", f.log)

    def test_batches_of_2_8_and_64(self):
        with Fleet(*self.common, *flags(["--prefill", "0"])) as fleet:
            for size in (2, 8, 64):
                bodies = (requests() * 6)[:size]
                results = run_streams(fleet, bodies)
                expected = (self.expected * 6)[:size]
                for result, wanted in zip(results, expected):
                    self.assertEqual(result, wanted)

    def test_after_preemption(self):
        # Eight requests that grow from 100 to 300 tokens in room for 1,200:
        # some must yield. (6 layers x 2 x 2 heads x 64 elements a token.)
        draw = random.Random(9)
        bodies = [{"model": "demo", "max_tokens": 200, "logprobs": 3,
                   "prompt": [draw.randrange(4000) for _ in range(100)],
                   "temperature": 0.9, "seed": i, "ignore_eos": True}
                  for i in range(8)]
        token_bytes = 6 * 2 * 2 * 64 * (2 if self.dtype == "bfloat16" else 4)
        for prefill in ("0", "1"):
            with self.subTest(prefill=prefill), Fleet(
                    *self.common, *flags([
                        "--prefill", prefill, "--max-model-len", "1100",
                        "--kv-cache-memory", str(1200 * token_bytes)])) as f:
                expected = one_by_one(f, bodies)
                self.assertEqual(
                    f.metric("tidepool_fleet_worker_preemptions_total"), 0)
                self.assertEqual(run_streams(f, bodies), expected)
                self.assertGreater(
                    f.metric("tidepool_fleet_worker_preemptions_total"), 0)

    def test_after_the_decode_worker_is_killed_mid_stream(self):
        shape = ["--prefill", "1", "--decode", "2"]
        bodies = [{**body, "max_tokens": 300} for body in requests()[:6]]
        with Fleet(*self.common, *flags(["--prefill", "0"])) as alone:
            expected = one_by_one(alone, bodies)
        with Fleet(*self.common, *flags(shape)) as fleet:
            victims = fleet.children("--role decode")
            self.assertEqual(len(victims), 2)
            killed = []

            def on_token(count):
                if count >= 20 and not killed:
                    killed.append(victims[0])
                    os.kill(victims[0], signal.SIGKILL)

            results = run_streams(fleet, bodies, on_token=on_token)
            self.assertTrue(killed)
            for result, wanted in zip(results, expected):
                self.assertEqual(result, wanted)
            self.assertGreater(
                fleet.metric("tidepool_gateway_migrations_total"), 0)
            # It comes back, and serves as before.
            wait_for(lambda: len(fleet.children("--role decode")) == 2)
            self.assertEqual(run_streams(fleet, bodies), expected)


class TokenExactFloat32Test(TokenExactTest):
    dtype = "float32"


if __name__ == "__main__":
    unittest.main()
