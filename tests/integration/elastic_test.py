"""`tidepool serve --elastic`: roles follow the load, and nobody notices."""

import asyncio
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import unittest

import httpx

from fleet import BIN, Fleet, run_streams, stream_ids, wait_for

# No SLO is stated, so that what presses is counted (tokens over the speed that
# is stated here, requests over their bound), not timed on this machine.
PERF = """
speed: {speed}
kv_capacity_tokens: 200000
prefill: {{base_seconds: 0.002, seconds_per_token: 5.0e-4}}
decode: {{base_seconds: 0.010, seconds_per_sequence: 1.0e-5}}
"""
SEQUENCES = 16  # at one worker at a time
PATIENCE = 120  # seconds, for what takes few


def prefill_heavy(model, number):
    """Long prompts, which share nothing, for a few tokens."""
    draw = random.Random(number)
    return {"model": model, "max_tokens": 8, "seed": number,
            "prompt": [draw.randrange(4000) for _ in range(1800)]}


def decode_heavy(model, number):
    return {"model": model, "max_tokens": 150, "seed": number,
            "prompt": f"Story {number}"}


class Load:
    """Clients that stream one request after another until the block ends."""

    def __init__(self, fleet, clients, body_of):
        self.fleet, self.clients = fleet, clients
        self.body_of, self.model = body_of, fleet.model()
        self.results = []  # (body, token ids)
        self.failures = []
        self.numbers = iter(range(100000))
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        asyncio.run(self.run_clients())

    async def run_clients(self):
        limits = httpx.Limits(max_connections=self.clients)
        async with httpx.AsyncClient(timeout=300, limits=limits) as http:
            await asyncio.gather(
                *(self.run_client(http) for _ in range(self.clients)))

    async def run_client(self, http):
        while not self.ending.is_set() and not self.failures:
            body = self.body_of(self.model, next(self.numbers))
            try:
                ids, _, _ = await stream_ids(http, self.fleet, body)
                self.results.append((body, ids))
            except Exception as failure:  # of whatever kind: told at the end
                self.failures.append(failure)

    def __enter__(self):
        self.thread.start()
        return self

    def end(self):
        """Nothing new begins; what runs goes on."""
        self.ending.set()

    def __exit__(self, kind, *_):
        self.end()
        self.thread.join()
        if kind is None and self.failures:
            raise self.failures[0]


class ElasticTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tidepool-test-")
        self.addCleanup(self.folder.cleanup)

    def perf(self, speed):
        path = pathlib.Path(self.folder.name) / f"perf-{speed}.yaml"
        path.write_text(PERF.format(speed=speed))
        return path

    def fleet(self, prefill, decode, *flags, speed=1):
        return Fleet("--engine", "emulated", "--perf-model", self.perf(speed),
                     "--prefill", prefill, "--decode", decode, *flags)

    def elastic(self):
        return self.fleet(2, 2, "--elastic", "--rebalance-stabilization", 1,
                          "--max-num-seqs", SEQUENCES, "--drain-timeout", 2)

    def prefilling(self, fleet):
        """Names of the workers that prefill."""
        workers = json.loads(fleet.get("/ready")[1])["workers"]
        return {w["name"] for w in workers if w["role"] == "prefill"}

    def moves(self, fleet):
        """(reason, worker) of every move that was told."""
        return re.findall(r"^elastic +\| (\w+): (\S+) (?:of|returns)",
                          fleet.log, re.M)

    def wait_for_prefill(self, fleet, load, count):
        def there():
            if load and load.failures:
                raise load.failures[0]
            return len(self.prefilling(fleet)) == count
        try:
            wait_for(there, PATIENCE, f"a fleet of {count} prefill workers")
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{fleet.log}") from failure

    def assert_tokens_of_one_process(self, results):
        with self.fleet(0, 1, speed=1000) as alone:
            expected = run_streams(alone, [body for body, _ in results], 32)
        for (body, ids), (wanted, _, _) in zip(results, expected):
            self.assertEqual(ids, wanted, body["seed"])

    def test_roles_follow_the_load_and_no_stream_notices(self):
        home = {"prefill-0", "prefill-1"}
        with self.elastic() as fleet:
            workers = fleet.children("tidepool-worker")
            self.assertEqual(self.prefilling(fleet), home)
            with Load(fleet, 12, prefill_heavy) as prompts:
                self.wait_for_prefill(fleet, prompts, 3)
                prompts.end()
                with Load(fleet, 40, decode_heavy) as stories:
                    self.wait_for_prefill(fleet, stories, 1)
            self.wait_for_prefill(fleet, None, 2)
            self.assertEqual(self.prefilling(fleet), home)
            self.assertEqual(fleet.children("tidepool-worker"), workers)
            moves = self.moves(fleet)
            reasons = [reason for reason, _ in moves]
            for reason in "PrefillPressure", "DecodePressure", "ReturnLent":
                self.assertIn(reason, reasons)
            # The last word on each worker is its own role.
            self.assertEqual(len(moves) % 2, 0, moves)
        self.assertGreater(len(prompts.results), 11)
        self.assertGreater(len(stories.results), 39)
        self.assert_tokens_of_one_process(prompts.results + stories.results)

    def test_a_lent_worker_that_dies_comes_back_lent(self):
        with self.elastic() as fleet:
            with Load(fleet, 12, prefill_heavy) as prompts:
                self.wait_for_prefill(fleet, prompts, 3)
                lent, = self.prefilling(fleet) - {"prefill-0", "prefill-1"}
                process, = fleet.children(f"/{lent} ")
                moves = self.moves(fleet)
                os.kill(process, signal.SIGKILL)
                wait_for(lambda: re.search(rf"{lent} +\| was killed by",
                                           fleet.log),
                         PATIENCE, "its death")
                wait_for(lambda: fleet.children(f"/{lent} "), PATIENCE,
                         "its return")
                self.wait_for_prefill(fleet, prompts, 3)
                self.assertIn(lent, self.prefilling(fleet))
                self.assertNotEqual(fleet.children(f"/{lent} "), [process])
                self.assertEqual(self.moves(fleet), moves)
        self.assert_tokens_of_one_process(prompts.results)

    def test_options_that_cannot_work_are_named(self):
        for flags, said in (
                (["--elastic"], "of 1 prefill and 1 decode workers none"),
                (["--elastic", "--prefill", "0", "--decode", "5"],
                 "of 0 prefill and 5 decode workers none"),
                (["--tbt-slo-ms", "50"], "--tbt-slo-ms: nothing follows"),
                (["--rebalance-stabilization", "5"],
                 "--rebalance-stabilization: nothing follows"),
                (["--elastic", "--rebalance-stabilization", "0"],
                 "--rebalance-stabilization")):
            result = subprocess.run(
                [BIN / "tidepool", "serve", *flags], capture_output=True,
                text=True, timeout=60, stdin=subprocess.DEVNULL)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    unittest.main()
