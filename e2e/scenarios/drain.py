"""`kubectl drain` empties a node under load: no stream fails, disruption
budgets hold nothing up, and what ran there runs elsewhere."""

import time

from framework import oracle


def run(context):
    context.ensure_chart()
    cluster = context.cluster
    fleet = context.fleet(prefill=2, decode=2,
                          spec={"conductor": {"replicas": 2}}).wait_ready()
    nodes = {pod["spec"]["nodeName"] for pod in fleet.pods()}
    assert len(nodes) > 1, f"all pods are on {nodes}"
    # Not the first: a local cluster's control plane is reached through it.
    node = sorted(nodes)[-1]
    bodies = oracle.bodies(6, max_tokens=80)
    begin = time.monotonic()
    try:
        with fleet.exact_load(4, context.oracle, bodies) as load:
            cluster.kubectl("drain", node, "--ignore-daemonsets",
                            "--delete-emptydir-data", "--timeout=150s",
                            timeout=160)
            seconds = time.monotonic() - begin
            fleet.wait_ready()
            assert not [pod for pod in fleet.pods()
                        if pod["spec"]["nodeName"] == node]
    finally:
        cluster.kubectl("uncordon", node)
    load.expect_exact(at_least=10)
    return (f"drained in {seconds:.0f} s, {len(load.streams)} streams, none "
            "failed")
