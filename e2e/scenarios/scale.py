"""`kubectl scale` up and down while clients stream: nothing fails, tokens stay
what they were, and re-applying the manifests moves nothing."""

from framework import oracle
from framework.waiting import always, eventually


def moving_writes(cluster):
    """All but status, which tells of the load until a while after it."""
    return [(verb, what) for verb, what in cluster.writes_of_controller()
            if not what.endswith("/status")]


def run(context):
    context.ensure_chart()
    fleet = context.fleet()
    fleet.wait_ready()
    with fleet.exact_load(4, context.oracle, oracle.bodies(6)) as load:
        for role, replicas in (("decode", 2), ("prefill", 2), ("decode", 1),
                               ("prefill", 1)):
            fleet.scale(role, replicas)
            fleet.wait_ready()
        eventually("streams to end", lambda: len(load.streams) >= 20, 120)
    load.expect_exact(at_least=20)

    before = fleet.uids()
    writes = len(moving_writes(context.cluster))
    for _ in range(3):
        fleet.apply()
    always("re-applied manifests move nothing",
           lambda: None if fleet.uids() == before else "pods were replaced", 5)
    new = moving_writes(context.cluster)[writes:]
    assert not new, f"re-applying made the controller write: {new}"
    return f"{len(load.streams)} streams, none failed"
