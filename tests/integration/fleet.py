"""Real fleets for tests: `tidepool serve` on loopback, and what they answer."""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TIDEPOOL_BIN", ROOT / "build/release/bin"))
SHARED_MODELS = ROOT.parent / "shared" / "models"


class Fleet:
    """One `tidepool serve`; `log` holds every line that it printed."""

    def __init__(self, *flags, timeout=60):
        self.folder = tempfile.TemporaryDirectory(
            prefix="tidepool-test-", ignore_cleanup_errors=True)
        self.log_path = pathlib.Path(self.folder.name) / "log"
        ready = pathlib.Path(self.folder.name) / "ready"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [BIN / "tidepool", "serve", "--port", "0", "--ready-file",
                 ready, *map(str, flags)],
                stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + timeout
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("the fleet did not start:\n" + self.log)
            time.sleep(0.02)
        self.url = json.loads(ready.read_text())["url"]

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends it gracefully; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the fleet did not end:\n" + self.log)
        return self.process.returncode

    def __del__(self):
        self.folder.cleanup()

    def children(self, flag=""):
        """Process ids of members whose command line holds `flag`."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rsplit(")", 1)[1].split()[1]) != self.process.pid:
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                if flag in line.decode(errors="replace"):
                    found.append(int(entry.name))
        return sorted(found)

    def get(self, path):
        """(status, body) of a GET."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, body, headers=None):
        """(status, json) of a POST of JSON (or of raw bytes)."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data,
            {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def complete(self, prompt, max_tokens=32, **fields):
        """The JSON of a successful greedy completion."""
        status, answer = self.post("/v1/completions", {
            "model": self.model(), "prompt": prompt, "max_tokens": max_tokens,
            "temperature": 0, **fields})
        if status != 200:
            raise AssertionError(f"HTTP {status}: {answer}\n{self.log}")
        return answer

    def model(self):
        status, answer = self.get("/v1/models")
        if status != 200:
            raise AssertionError(f"HTTP {status}: {answer}\n{self.log}")
        return json.loads(answer)["data"][0]["id"]

    def metrics(self):
        """{name{labels}: value} of /metrics."""
        values = {}
        for line in self.get("/metrics")[1].splitlines():
            match = re.match(r"([a-z_:]+(?:\{.*\})?) (\S+)$", line)
            if match:
                values[match.group(1)] = float(match.group(2))
        return values

    def metric(self, name, **labels):
        """The sum over series of `name` that carry `labels`."""
        series = {key: value for key, value in self.metrics().items()
                  if key.split("{")[0] == name}
        if not series:
            raise AssertionError(f"/metrics has no {name}")
        return sum(value for key, value in series.items()
                   if all(f'{label}="{wanted}"' in key
                          for label, wanted in labels.items()))


def wait_for(condition, timeout=20.0, what="condition"):
    """Polls until `condition()` holds; a failure to hold is an error."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {timeout} s")
        time.sleep(0.02)


async def stream_ids(client, fleet, body, on_token=None):
    """Token ids and logprobs of one streamed completion, to its [DONE]."""
    ids, logprobs, finish, done = [], [], None, False
    async with client.stream("POST", fleet.url + "/v1/completions",
                             json={**body, "stream": True,
                                   "return_token_ids": True}) as answer:
        if answer.status_code != 200:
            raise AssertionError(
                f"HTTP {answer.status_code}: {await answer.aread()}")
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                done = True
                continue
            event = json.loads(data)
            if "error" in event:
                raise AssertionError(f"error event: {event}\n{fleet.log}")
            for choice in event["choices"]:
                ids += choice.get("token_ids") or []
                if choice.get("logprobs"):
                    logprobs += choice["logprobs"]["token_logprobs"]
                finish = choice.get("finish_reason") or finish
                if on_token:
                    on_token(len(ids))
    assert done and finish, "the stream ended without [DONE]"
    return ids, logprobs, finish


def run_streams(fleet, bodies, limit=1000, on_token=None):
    """Runs streams of all `bodies` at once; their results in order."""
    async def go():
        limits = httpx.Limits(max_connections=limit,
                              max_keepalive_connections=limit)
        async with httpx.AsyncClient(timeout=300, limits=limits) as client:
            return await asyncio.gather(
                *(stream_ids(client, fleet, body, on_token)
                  for body in bodies))
    return asyncio.run(go())
