"""Streams as many clients open them, each recorded from its request to its
end: tokens, times, and whatever went wrong."""

import asyncio
import dataclasses
import json
import threading

import httpx


@dataclasses.dataclass
class Stream:
    """One request and all that came back."""
    prompt: object
    status: int = 0
    tokens: list = dataclasses.field(default_factory=list)
    text: str = ""
    finish: str | None = None
    done: bool = False  # [DONE] was seen
    problem: str | None = None  # a broken connection or an error event
    retry_after: str | None = None

    @property
    def complete(self):
        return self.status == 200 and self.done and self.finish is not None \
            and self.problem is None

    @property
    def rejected(self):
        """Refused before any work, saying when to come again."""
        return self.status == 429 and int(self.retry_after or 0) > 0

    def __str__(self):
        seen = (f"HTTP {self.status}, {len(self.tokens)} tokens, "
                f"finish {self.finish}")
        return f"{seen}: {self.problem}" if self.problem else seen


async def open_stream(client, url, body, stream):
    """Fills `stream` with what one streamed completion brings."""
    try:
        async with client.stream(
                "POST", f"{url}/v1/completions",
                json={**body, "stream": True, "return_token_ids": True}
                ) as answer:
            stream.status = answer.status_code
            stream.retry_after = answer.headers.get("retry-after")
            if answer.status_code != 200:
                stream.problem = (await answer.aread()).decode()[:500]
                return
            async for line in answer.aiter_lines():
                take_line(line, stream)
    except Exception as error:  # also answers that are no JSON
        stream.problem = f"{type(error).__name__}: {error}"
    if not stream.done and stream.problem is None:
        stream.problem = "the stream ended without [DONE]"


def take_line(line, stream):
    if not line.startswith("data:"):
        return
    data = line[5:].strip()
    if data == "[DONE]":
        stream.done = True
        return
    event = json.loads(data)
    if "error" in event:
        stream.problem = f"error event: {event['error']}"
        return
    for choice in event["choices"]:
        stream.tokens += choice.get("token_ids") or []
        stream.text += choice.get("text") or ""
        stream.finish = choice.get("finish_reason") or stream.finish


def http_client(api_key, connections):
    limits = httpx.Limits(max_connections=connections,
                          max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.AsyncClient(
        limits=limits, headers=headers,
        timeout=httpx.Timeout(120, connect=10))


def stream_all(url, bodies, api_key=None):
    """Runs the requests at once; their streams in order."""
    async def go():
        streams = [Stream(body["prompt"]) for body in bodies]
        async with http_client(api_key, len(bodies)) as client:
            await asyncio.gather(*(
                open_stream(client, url, body, stream)
                for body, stream in zip(bodies, streams)))
        return streams
    return asyncio.run(go())


class Load:
    """`clients` that each ask `body_of(number)` again and again, from `with` to
    its end; a refused client comes again after `pause` seconds. New
    connections for every request, so that they spread over conductors."""

    def __init__(self, url, body_of, clients, api_key=None, pause=0.2):
        self.streams = []  # ended ones
        self._url, self._body_of, self._api_key = url, body_of, api_key
        self._clients, self._pause = clients, pause
        self._number = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, timeout=120):
        """No new requests; those under way end as they may."""
        self._ending.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise AssertionError(f"streams did not end in {timeout} s")

    def failures(self):
        return [s for s in self.streams if not s.complete]

    def expect_no_failures(self, at_least=1):
        failed = self.failures()
        if failed:
            raise AssertionError(
                f"{len(failed)} of {len(self.streams)} streams failed; the "
                f"first: {failed[0]}")
        if len(self.streams) < at_least:
            raise AssertionError(f"only {len(self.streams)} streams ended, "
                                 f"{at_least} expected")

    async def _run(self):
        async with http_client(self._api_key, self._clients) as client:
            await asyncio.gather(*(self._client(client)
                                   for _ in range(self._clients)))

    async def _client(self, client):
        while not self._ending.is_set():
            body = self._body_of(self._number)
            self._number += 1
            stream = Stream(body["prompt"])
            await open_stream(client, self._url, body, stream)
            self.streams.append(stream)
            if not stream.complete:
                await asyncio.sleep(self._pause)


class ExactLoad(Load):
    """Requests whose tokens are known, in turn."""

    def __init__(self, url, bodies, tokens, clients, api_key=None):
        super().__init__(url, lambda i: bodies[i % len(bodies)], clients,
                         api_key)
        self._tokens = {str(body["prompt"]): ids
                        for body, ids in zip(bodies, tokens)}

    def expect_exact(self, at_least=1):
        self.expect_no_failures(at_least)
        self.expect_right_tokens()

    def expect_right_tokens(self):
        """Of complete streams; what failed is judged elsewhere."""
        for stream in self.streams:
            wanted = self._tokens[str(stream.prompt)]
            if stream.complete and stream.tokens != wanted:
                raise AssertionError(
                    f"other tokens for {stream.prompt!r}: {stream.tokens}, "
                    f"expected {wanted}")
