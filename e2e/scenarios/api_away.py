"""The API server is away: the dataplane does not notice, also not when a
worker dies meanwhile; afterwards changes are carried out again."""

import time

from framework import oracle

from .kills import streams_go_on

AWAY_SECONDS = 30
# Kube-proxies, through which the controller calls, and kubelets watch again
# after pauses that have grown to a minute.
BACK_SECONDS = 150


def run(context, seconds=AWAY_SECONDS):
    context.ensure_chart()
    cluster = context.cluster
    fleet = context.fleet(decode=2).wait_ready()
    victim, before = fleet.pods(role="decode")[0], fleet.uids()
    bodies = oracle.bodies(6, max_tokens=80)
    with fleet.exact_load(4, context.oracle, bodies) as load:
        streams_go_on(load)
        with cluster.without_api():
            end = time.monotonic() + seconds
            streams_go_on(load)
            # The kubelet starts it again; nobody tells the conductors.
            cluster.signal(victim)
            while time.monotonic() < end:
                streams_go_on(load, 1)
        fleet.wait_ready(BACK_SECONDS)
        assert {uid for uid, _ in fleet.uids()} == {uid for uid, _ in before}
        fleet.scale("prefill", 2)
        fleet.wait_ready()
    load.expect_exact(at_least=20)
    return f"{seconds} s away, {len(load.streams)} streams, none failed"
