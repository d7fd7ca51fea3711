"""Roles of workers change under streaming load: no stream fails, every token is
the one that a process alone gives, and the processes stay the same.
TIDEPOOL_FLIPS sets how many changes are made (50)."""

import json
import os
import random
import re
import subprocess
import unittest

from fleet import BIN, Fleet, run_streams, wait_for

FLIPS = int(os.environ.get("TIDEPOOL_FLIPS", "50"))
COMMON = ["--model", "demo", "--threads", "1"]


def bodies(count):
    """Streams of 100 to 300 tokens over prompts that share prefixes."""
    draw = random.Random(3)
    stem = [draw.randrange(4000) for _ in range(600)]
    return [{"model": "demo", "max_tokens": draw.randrange(100, 300),
             "prompt": stem[:draw.randrange(10, 600)]
             + [draw.randrange(4000) for _ in range(draw.randrange(1, 80))],
             "temperature": 0 if i % 2 else 0.9, "seed": i, "logprobs": 1,
             "ignore_eos": True} for i in range(count)]


def addresses(fleet):
    """{name: control address} of its workers."""
    return dict(re.findall(r"^(\S+-\d+) *\|.*listening on ([\d.]+:\d+), KV",
                           fleet.log, re.M))


class RolesTest(unittest.TestCase):
    def start_flipper(self, count, drain_ms, pause_ms, targets):
        flipper = subprocess.Popen(
            [BIN / "role_flipper", str(count), "1", str(drain_ms),
             str(pause_ms), *targets],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(flipper.wait)
        self.addCleanup(flipper.kill)
        return flipper

    def test_streams_survive_role_changes(self):
        requests = bodies(12)
        with Fleet(*COMMON, "--prefill", "0") as alone:
            expected = [run_streams(alone, [body])[0] for body in requests]
        with Fleet(*COMMON, "--prefill", "2", "--decode", "3") as fleet:
            workers = addresses(fleet)
            self.assertEqual(len(workers), 5)
            processes = fleet.children("--role")
            # One decode worker stays, as planners see to.
            flipper = self.start_flipper(
                FLIPS, 400, 50,
                [address for name, address in workers.items()
                 if name != "decode-0"])
            rounds = 0
            while flipper.poll() is None or rounds == 0:
                self.assertEqual(run_streams(fleet, requests), expected)
                rounds += 1
            output, errors = flipper.communicate()
            self.assertEqual(flipper.returncode, 0, errors)
            self.assertEqual(fleet.children("--role"), processes)
            handed_back = fleet.metric("tidepool_conductor_handed_back_total")
            retries = fleet.metric("tidepool_conductor_retries_total")
            print(f"under load: {output.strip()} in {rounds} rounds of "
                  f"{len(requests)} streams, {handed_back:.0f} handed back, "
                  f"{retries:.0f} attempts failed")
            self.assertEqual(json.loads(output)["flips"], FLIPS)
            if FLIPS >= 50:
                self.assertGreater(handed_back, 0)
            # All of them serve as before, in the roles that they have now.
            wait_for(lambda: fleet.metric("tidepool_fleet_ready_workers") == 5)
            self.assertEqual(run_streams(fleet, requests), expected)

    def test_idle_workers_change_at_once(self):
        with Fleet(*COMMON, "--prefill", "1", "--decode", "2") as fleet:
            flipper = self.start_flipper(
                200, 1000, 0, [address for name, address in
                               addresses(fleet).items() if name != "decode-0"])
            output, errors = flipper.communicate(timeout=120)
            self.assertEqual(flipper.returncode, 0, errors)
            print(f"idle: {output.strip()}")


if __name__ == "__main__":
    unittest.main()
