"""`helm uninstall` is refused while there are fleets, and names them;
afterwards only the custom resource definitions remain."""

import json

from framework.cluster import CommandFailed
from framework.context import SYSTEM
from framework.waiting import eventually

OURS = "app.kubernetes.io/name=tidepool"
KINDS = ["deployments", "statefulsets", "replicasets", "services", "pods",
         "networkpolicies", "poddisruptionbudgets", "serviceaccounts", "jobs",
         "secrets", "configmaps", "leases", "roles", "rolebindings",
         "clusterroles", "clusterrolebindings"]


def remains(cluster):
    return [f"{kind}/{item['metadata']['name']}" for kind in KINDS
            for item in cluster.list(kind, labelSelector=OURS)]


def eventually_gone(cluster):
    def gone():
        found = remains(cluster)
        assert not found, f"{', '.join(found)} remain"
        return True
    eventually("nothing of Tidepool to remain", gone, 90)


def run(context):
    context.ensure_chart()
    cluster = context.cluster
    fleet = context.fleet(name="kept").wait_ready()
    pods = fleet.uids()
    try:
        cluster.helm("uninstall", "tidepool", "--namespace", SYSTEM)
        raise AssertionError("helm uninstalled beneath a fleet")
    except CommandFailed as refusal:
        told = refusal.output + cluster.kubectl(
            "-n", SYSTEM, "logs", "job/tidepool-check-uninstall")
    for name in ("kept", "kept-prefill", "kept-decode"):
        assert f"{fleet.namespace}/{name}" in told, \
            f"the refusal does not name {fleet.namespace}/{name}:\n{told}"
    assert fleet.uids() == pods, "the refusal cost a pod"
    # Helm calls the release "uninstalling" then; this makes it whole again.
    revision = json.loads(cluster.helm(
        "history", "tidepool", "--namespace", SYSTEM,
        "--output", "json"))[-1]["revision"]
    cluster.helm("rollback", "tidepool", str(revision), "--namespace", SYSTEM,
                 "--wait")

    fleet.delete()
    eventually("the fleets of other stories to be gone", lambda: not any(
        cluster.list(kind) for kind in
        ("kvcachepools", "prefillpools", "decodepools")), 90)
    cluster.helm("uninstall", "tidepool", "--namespace", SYSTEM, "--wait")
    eventually_gone(cluster)
    # Nothing is left in it that would wait for a controller.
    cluster.kubectl("delete", "namespace", fleet.namespace, "--timeout=50s")
    crds = [item["metadata"]["name"]
            for item in cluster.list("customresourcedefinitions")
            if item["spec"]["group"] == "tidepool.dev"]
    assert sorted(crds) == ["decodepools.tidepool.dev",
                            "kvcachepools.tidepool.dev",
                            "prefillpools.tidepool.dev"], crds
