"""A HorizontalPodAutoscaler scales a pool by the conductors' saturation gauge,
up under load and down after it, while rebalancing is off; re-applied manifests
without `replicas` leave it alone."""

from framework import emulated
from framework.external_metrics import ExternalMetrics
from framework.waiting import eventually

GAUGE = "tidepool_conductor_saturation_ratio"
CLIENTS = 16


def autoscaler(fleet):
    at_once = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "decode", "namespace": fleet.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "tidepool.dev/v1alpha1",
                               "kind": "DecodePool", "name": "demo-decode"},
            "minReplicas": 1, "maxReplicas": 3,
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
            "metrics": [{"type": "External", "external": {
                "metric": {"name": GAUGE},
                "target": {"type": "Value", "value": "700m"}}}]}}


def replicas(fleet):
    return fleet.pool("decode")["spec"]["replicas"]


def long_answers(number):
    return {"model": "demo", "max_tokens": 150, "temperature": 0,
            "prompt": [11, number % 4000]}


def run(context):
    context.ensure_chart()
    fleet = emulated.fleet(
        context, prefill=0, decode=None, prefill_seconds_per_token=1e-4,
        decode_base_seconds=0.02, decode_spec={"maxNumSeqs": 8}).wait_ready()
    with ExternalMetrics(context.cluster, context.folder(),
                         {GAUGE: lambda: fleet.metric(GAUGE, role="decode")}):
        context.cluster.apply(autoscaler(fleet))
        with fleet.load(CLIENTS, long_answers) as load:
            eventually("the pool to grow", lambda: replicas(fleet) >= 2, 90)
            grown = replicas(fleet)
            fleet.apply()
            assert replicas(fleet) >= grown, "re-applying moved replicas"
            eventually("a new worker to be ready", lambda: fleet.pool(
                "decode")["status"].get("readyReplicas", 0) >= 2, 60)
        load.expect_no_failures(at_least=CLIENTS)
        eventually("the pool to shrink", lambda: replicas(fleet) == 1, 90)
        eventually("its pods to go", lambda: len(
            fleet.pods(role="decode")) == 1, 60)
        context.cluster.kubectl("-n", fleet.namespace, "delete", "hpa",
                                "decode")
    return f"1 to {grown} and back, {len(load.streams)} streams, none failed"
