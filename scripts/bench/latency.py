"""TTFT and time per token of OpenAI-compatible servers, in turn.

    latency.py --prompt-tokens 512 --max-tokens 64 --rounds 9 \
        tidepool=http://127.0.0.1:8000 vllm=http://127.0.0.1:8555

Every round asks each server once, one request at a time, with a prompt of
random ids that no server has seen; medians and 90th percentiles are over
rounds, and differences between servers are paired within a round.
"""

import argparse
import http.client
import json
import random
import statistics
import time
import urllib.parse


def model_of(url):
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.request("GET", "/v1/models")
    return json.loads(connection.getresponse().read())["data"][0]["id"]


def ask(connection, model, prompt, max_tokens):
    """(TTFT, mean gap) in seconds of one greedy stream."""
    body = json.dumps({
        "model": model, "prompt": prompt, "max_tokens": max_tokens,
        "temperature": 0, "ignore_eos": True, "stream": True,
        "return_token_ids": True})
    start = time.perf_counter()
    connection.request("POST", "/v1/completions", body,
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"HTTP {answer.status}: {answer.read()[:500]}")
    times, tokens = [], 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise SystemExit(f"error event: {event}")
        ids = sum(len(choice.get("token_ids") or [])
                  for choice in event["choices"])
        if ids:
            tokens += ids
            times.append(time.perf_counter())
    if tokens != max_tokens:
        raise SystemExit(f"{tokens} tokens instead of {max_tokens}")
    gap = (times[-1] - times[0]) / (tokens - 1) if tokens > 1 else 0.0
    return times[0] - start, gap


def describe(values, unit=1e3):
    ordered = sorted(values)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return (f"median {unit * statistics.median(ordered):8.2f} ms   "
            f"p90 {unit * p90:8.2f} ms   min {unit * ordered[0]:8.2f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--vocab", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    servers = {}
    for item in arguments.servers:
        name, _, url = item.partition("=")
        parsed = urllib.parse.urlsplit(url)
        servers[name] = (http.client.HTTPConnection(
            parsed.hostname, parsed.port, timeout=600), model_of(parsed))
    results = {name: [] for name in servers}
    for number in range(arguments.rounds + 2):
        prompt = [draw.randrange(10, arguments.vocab)
                  for _ in range(arguments.prompt_tokens)]
        for name, (connection, model) in servers.items():
            result = ask(connection, model, prompt, arguments.max_tokens)
            if number >= 2:  # two rounds warm up
                results[name].append(result)
    for name, rows in results.items():
        print(f"{name:12} TTFT {describe([r[0] for r in rows])}")
        print(f"{'':12} TBT  {describe([r[1] for r in rows])}")
    first, *others = results
    for name in others:
        difference = [b[0] - a[0]
                      for a, b in zip(results[first], results[name])]
        print(f"TTFT {name} - {first}: {describe(difference)}")
        ratio = [(b[0] / a[0], b[1] / a[1] if a[1] else 0)
                 for a, b in zip(results[first], results[name])]
        print(f"ratio {name} / {first}: TTFT "
              f"{statistics.median(r[0] for r in ratio):.2f}, TBT "
              f"{statistics.median(r[1] for r in ratio):.2f}")


if __name__ == "__main__":
    main()
