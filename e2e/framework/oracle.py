"""The tokens that one process gives: what every fleet must give as well."""

import functools
import json
import random
import sys

from . import load
from .cluster import ROOT

sys.path.insert(0, str(ROOT / "tests/integration"))
import fleet as processes  # noqa: E402  (lives among the integration tests)

STORY = ("Once upon a time there was a little girl named Lily. She loved to "
         "play in the park with her dog Max. ")


def bodies(count, max_tokens=48, seed=3):
    """Requests of many lengths, greedy and seeded; the same for a seed."""
    draw = random.Random(seed)
    made = []
    for i in range(count):
        prompt = STORY * (1 + i) if i % 3 == 0 else [
            draw.randrange(4000) for _ in range(draw.choice([5, 70, 300, 700]))]
        made.append({
            "model": "demo", "prompt": prompt, "max_tokens": max_tokens,
            "temperature": 0.9 if i % 2 else 0, "seed": 100 + i,
            "ignore_eos": True})
    return made


class Oracle:
    """One `tidepool serve` without prefill workers, while it is needed."""

    def __init__(self, model="demo"):
        self._model = model

    @functools.cached_property
    def _process(self):
        return processes.Fleet("--model", self._model, "--prefill", "0",
                               "--threads", "2", "--no-auth")

    def tokens(self, requests):
        """Token ids of each request, which runs alone; known ones at once."""
        return [self._tokens_of(json.dumps(body)) for body in requests]

    @functools.cache
    def _tokens_of(self, body):
        stream, = load.stream_all(self._process.url, [json.loads(body)])
        if not stream.complete:
            raise AssertionError(f"the oracle failed: {stream}")
        return stream.tokens

    def text(self, request):
        stream, = load.stream_all(self._process.url, [request])
        return stream.text

    def close(self):
        if "_process" in self.__dict__:
            self._process.stop()
