"""Fleets of emulated engines: as exact as real ones, and as slow as stated."""

import pathlib
import tempfile
import time
import unittest

from fleet import Fleet, run_streams

PERF = """
kv_capacity_tokens: 100000
prefill: {base_seconds: 0.002, seconds_per_token: 1.0e-4}
decode: {base_seconds: 0.004, seconds_per_sequence: 1.0e-5}
"""


class EmulatedTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tidepool-test-")
        self.addCleanup(self.folder.cleanup)
        self.perf = pathlib.Path(self.folder.name) / "perf.yaml"
        self.perf.write_text(PERF)

    def fleet(self, prefill, decode):
        return Fleet("--engine", "emulated", "--perf-model", self.perf,
                     "--prefill", prefill, "--decode", decode)

    def streams(self, fleet, count):
        """The token ids of `count` concurrent requests."""
        model = fleet.model()
        return [ids for ids, _, _ in run_streams(fleet, [
            {"model": model, "max_tokens": 50, "seed": i,
             "prompt": f"Story {i} " * (5 + i % 7)} for i in range(count)])]

    def test_a_dozen_workers_answer_as_one_does(self):
        with self.fleet(0, 1) as alone:
            expected = self.streams(alone, 60)
        self.assertTrue(all(len(ids) == 50 for ids in expected))
        self.assertGreater(len({tuple(ids) for ids in expected}), 50)
        with self.fleet(6, 6) as fleet:
            self.assertEqual(self.streams(fleet, 60), expected)

    def test_a_request_takes_no_less_than_stated(self):
        with self.fleet(1, 1) as fleet:
            start = time.monotonic()
            fleet.complete("Once", max_tokens=100)
            # A prefill and 99 iterations; how much more depends on the machine.
            self.assertGreaterEqual(time.monotonic() - start, 99 * 0.004)

    def test_a_bad_model_of_performance_is_named(self):
        self.perf.write_text("prefill: {base_seconds: -1}")
        with self.assertRaisesRegex(
                RuntimeError, r"prefill\.base_seconds: -1 is not within"):
            self.fleet(0, 1)


if __name__ == "__main__":
    unittest.main()
