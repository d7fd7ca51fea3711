"""More requests than a fleet may hold: the rest is refused at once, with 429
and a Retry-After; more replicas, and all are served again."""

from framework import emulated

AT_ONCE = 2600  # a conductor holds 2,048 that wait


def requests(count, max_tokens):
    return [{"model": "demo", "prompt": [7, number % 4000], "temperature": 0,
             "max_tokens": max_tokens} for number in range(count)]


def run(context):
    context.ensure_chart()
    fleet = emulated.fleet(
        context, prefill=0, decode=1,
        prefill_seconds_per_token=1e-4, decode_base_seconds=0.03,
        decode_spec={"maxNumSeqs": 64}).wait_ready()
    streams = fleet.stream_all(requests(AT_ONCE, 8))
    served = [stream for stream in streams if stream.complete]
    refused = [stream for stream in streams if not stream.complete]
    assert refused, f"{AT_ONCE} requests at once were all served"
    odd = [stream for stream in refused if not stream.rejected]
    assert not odd, f"{len(odd)} streams failed otherwise: {odd[0]}"
    assert all(int(stream.retry_after) > 0 for stream in refused)

    fleet.scale("decode", 3)
    fleet.wait_ready()
    again = fleet.stream_all(requests(500, 8))
    failed = [stream for stream in again if not stream.complete]
    assert not failed, f"{len(failed)} of 500 failed afterwards: {failed[0]}"
    return f"{len(served)} served, {len(refused)} refused, then all served"
