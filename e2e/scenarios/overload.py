"""More than a fleet may hold: the rest is refused at once, with 429 and a
Retry-After; more replicas, and the same load is served to the end."""

from framework import emulated
from framework.waiting import eventually

# A conductor holds 2,048 choices that wait; each worker runs 256 besides. So
# one worker is too few for these, and three are enough.
CHOICES = 8
AT_ONCE = 325
SEQUENCES = 256


def requests():
    return [{"model": "demo", "prompt": [7, number], "n": CHOICES,
             "temperature": 0.9, "max_tokens": 8} for number in range(AT_ONCE)]


def run(context):
    context.ensure_chart()
    fleet = emulated.fleet(
        context, prefill=0, decode=1,
        prefill_seconds_per_token=1e-4, decode_base_seconds=0.3,
        decode_spec={"maxNumSeqs": SEQUENCES}).wait_ready()
    streams = fleet.stream_all(requests())
    refused = [stream for stream in streams if not stream.complete]
    assert refused, f"{AT_ONCE} requests at once were all served"
    odd = [stream for stream in refused if not stream.rejected]
    assert not odd, f"{len(odd)} streams failed otherwise: {odd[0]}"

    fleet.scale("decode", 3)
    fleet.wait_ready()
    # Its conductor looks names up every few seconds.
    eventually("the conductor to have three workers", lambda: fleet.metric(
        "tidepool_fleet_ready_workers") == 3, 30)
    failed = [stream for stream in fleet.stream_all(requests())
              if not stream.complete]
    assert not failed, f"{len(failed)} failed afterwards: {failed[0]}"
    return (f"{AT_ONCE - len(refused)} served, {len(refused)} refused; with "
            f"three workers all {AT_ONCE} served")
