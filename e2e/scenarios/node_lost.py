"""A node drops off the network with half of the workers. Streams go on, with
the same tokens; when it comes back, so do its workers."""

from framework import oracle
from framework.cluster import pod_is_ready
from framework.waiting import eventually

from .kills import streams_go_on

NODE = "n2"  # n1 has the control plane


def run(context):
    context.ensure_chart()
    cluster = context.cluster
    # The gateway stays; a conductor's own streams go where it goes.
    keep = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    spread = {"template": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
         "whenUnsatisfiable": "DoNotSchedule"}]}}
    fleet = context.fleet(
        prefill=2, decode=2, prefill_spec=spread, decode_spec=spread,
        spec={"conductor": {"template": keep}}).wait_ready()
    lost = [pod for pod in fleet.pods() if pod["spec"]["nodeName"] == NODE]
    roles = {pod["metadata"]["labels"]["tidepool.dev/role"] for pod in lost}
    assert roles == {"prefill", "decode"}, f"{NODE} has only {roles}"
    bodies = oracle.bodies(6, max_tokens=120)
    try:
        with fleet.exact_load(4, context.oracle, bodies) as load:
            streams_go_on(load)
            cluster.set_link(NODE, up=False)
            streams_go_on(load, 12)
            eventually("the node to be seen as lost", lambda: not any(
                pod_is_ready(pod) for pod in fleet.pods()
                if pod["spec"]["nodeName"] == NODE), 60)
            streams_go_on(load)
            cluster.set_link(NODE, up=True)
            fleet.wait_ready(120)
            streams_go_on(load)
        load.expect_exact(at_least=20)
    finally:
        cluster.set_link(NODE, up=True)
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{NODE}",
                        "--timeout=60s", timeout=70)
    return f"{len(load.streams)} streams, none failed"
