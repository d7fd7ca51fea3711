"""Workers, a conductor and the controller are killed (SIGKILL) while clients
stream. A worker's death costs no stream and no token; a conductor's costs only
the streams it held; the controller's costs none."""

from framework import oracle
from framework.cluster import restarts
from framework.context import CONTROLLER, SYSTEM
from framework.waiting import eventually

CLIENTS = 6
# The election waits for a lease to end that nobody gave back.
FAILOVER_SECONDS_MAX = 15


def streams_go_on(load, more=CLIENTS):
    """Waits until that many more streams have ended."""
    target = len(load.streams) + more
    eventually("streams to go on", lambda: len(load.streams) >= target, 60)


def kill(cluster, pod):
    """Kills its process; what to call to wait until it was started again."""
    name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
    cluster.signal(pod)
    return lambda: eventually(
        f"{name} to be started again",
        lambda: restarts(cluster.get("pods", name, space)) > restarts(pod), 60)


def kill_worker(context, fleet, role, load):
    streams_go_on(load, 2)
    is_back = kill(context.cluster, fleet.pods(role=role)[0])
    streams_go_on(load)
    is_back()
    fleet.wait_ready()


def kill_controller(context, fleet):
    """Seconds until a change is carried out again."""
    cluster = context.cluster
    are_back = [kill(cluster, pod) for pod in cluster.list(
        "pods", SYSTEM, labelSelector=CONTROLLER)]
    seconds = fleet.carried_out("decode", 3, FAILOVER_SECONDS_MAX + 15)
    for is_back in are_back:
        is_back()
    return seconds


def run(context):
    context.ensure_chart()
    fleet = context.fleet(prefill=2, decode=2,
                          spec={"conductor": {"replicas": 2}}).wait_ready()
    bodies = oracle.bodies(6, max_tokens=120)
    with fleet.exact_load(CLIENTS, context.oracle, bodies) as load:
        kill_worker(context, fleet, "decode", load)
        kill_worker(context, fleet, "prefill", load)
        failover = kill_controller(context, fleet)
        fleet.wait_ready()
        streams_go_on(load)
    load.expect_exact(at_least=20)

    with fleet.exact_load(CLIENTS, context.oracle, bodies) as cut:
        streams_go_on(cut)
        is_back = kill(context.cluster, fleet.pods(component="conductor")[0])
        streams_go_on(cut, 3 * CLIENTS)
        is_back()
    cut.expect_right_tokens()
    broken = cut.failures()
    # The Service leads to it until its readiness probe fails, as well.
    assert len(broken) <= 4 * CLIENTS, \
        f"{len(broken)} of {len(cut.streams)} streams failed: {broken[0]}"
    fleet.wait_ready()
    with fleet.exact_load(CLIENTS, context.oracle, bodies) as after:
        streams_go_on(after)
    after.expect_exact()
    assert failover <= FAILOVER_SECONDS_MAX, \
        f"the controller was back after {failover:.1f} s"
    return (f"{len(load.streams)} streams, none failed; controller back in "
            f"{failover:.1f} s; {len(broken)} streams cut with a conductor")
