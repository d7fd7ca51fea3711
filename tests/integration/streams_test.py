"""Many streams at once, and clients that leave: nothing is lost or leaked."""

import asyncio
import os
import pathlib
import random
import re
import unittest

import httpx

from fleet import Fleet, run_streams, wait_for

STREAMS = int(os.environ.get("TIDEPOOL_TEST_STREAMS", "500"))
DISCONNECTS = int(os.environ.get("TIDEPOOL_TEST_DISCONNECTS", "200"))


def body(draw, max_tokens):
    return {"model": "demo", "temperature": 0.8, "ignore_eos": True,
            "prompt": [draw.randrange(4000) for _ in
                       range(draw.choice([5, 20, 70, 150]))],
            "seed": draw.randrange(1 << 30), "max_tokens": max_tokens}


def usage(pid):
    """(open files, bytes of heap and stacks) of a process. KV memory is shared
    memory and filled by design."""
    proc = pathlib.Path(f"/proc/{pid}")
    status = (proc / "status").read_text()
    return (len(list((proc / "fd").iterdir())),
            1024 * int(re.search(r"RssAnon:\s+(\d+)", status).group(1)))


class StreamsTest(unittest.TestCase):
    def test_500_concurrent_streams_have_the_right_tokens(self):
        draw = random.Random(3)
        kinds = [body(draw, 24) for _ in range(25)]
        with Fleet("--model", "demo", "--prefill", "0", "--threads",
                   "1") as alone:
            expected = [run_streams(alone, [kind])[0] for kind in kinds]
        with Fleet("--model", "demo", "--prefill", "1", "--threads",
                   "1") as fleet:
            bodies = [kinds[i % len(kinds)] for i in range(STREAMS)]
            results = run_streams(fleet, bodies, limit=STREAMS)
            for i, result in enumerate(results):
                self.assertEqual(result, expected[i % len(kinds)])

    def test_random_disconnects_leak_nothing(self):
        with Fleet("--model", "demo", "--prefill", "1", "--threads", "1",
                   timeout=60) as fleet:
            members = fleet.children()
            draw = random.Random(5)
            asyncio.run(self.disconnect(fleet, draw, 50))
            self.settle(fleet)
            before = {pid: usage(pid) for pid in members}
            asyncio.run(self.disconnect(fleet, draw, DISCONNECTS))
            self.settle(fleet)
            for pid in members:
                files, memory = usage(pid)
                self.assertLessEqual(files, before[pid][0] + 4)
                self.assertLess(memory, before[pid][1] + (32 << 20))
            # And it still serves.
            fleet.complete("Once upon a time", max_tokens=4)

    def settle(self, fleet):
        wait_for(lambda: fleet.metric("vllm:num_requests_running") == 0 and
                 fleet.metric("vllm:num_requests_waiting") == 0,
                 what="every cancellation")
        # Pages that are neither free nor merely cached are held by requests.
        wait_for(lambda: fleet.metric("tidepool_fleet_worker_pages") ==
                 fleet.metric("tidepool_fleet_worker_free_pages"),
                 what="the return of every page")

    async def disconnect(self, fleet, draw, count):
        """`count` streams, 20 at a time, each left at a random point."""
        gate = asyncio.Semaphore(20)

        async def one(client):
            async with gate:
                leave_after = draw.choice([0, 0, 1, 3, 10])
                request = body(draw, 200)
                if leave_after == 0:
                    try:
                        await asyncio.wait_for(
                            client.post(fleet.url + "/v1/completions",
                                        json=request),
                            draw.random() * 0.2)
                    except asyncio.TimeoutError:
                        pass
                    return
                async with client.stream("POST",
                                         fleet.url + "/v1/completions",
                                         json={**request, "stream": True}
                                         ) as answer:
                    async for line in answer.aiter_lines():
                        leave_after -= line.startswith("data:")
                        if leave_after <= 0:
                            return

        async with httpx.AsyncClient(timeout=60) as client:
            await asyncio.gather(*(one(client) for _ in range(count)))


if __name__ == "__main__":
    unittest.main()
