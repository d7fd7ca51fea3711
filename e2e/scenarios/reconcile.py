"""Three manifests become a fleet's objects, owned and labelled; re-applying
them, and doing nothing, writes nothing; deleting them leaves nothing."""

import time

from framework.controller_process import ControllerProcess, install_rights
from framework.pretend_kubelet import PretendKubelet
from framework.waiting import eventually

OBJECTS = {
    "deployments": {"demo-conductor"},
    "statefulsets": {"demo-prefill", "demo-decode"},
    "services": {"demo-conductor", "demo-prefill", "demo-decode"},
    "poddisruptionbudgets": {"demo-conductor", "demo-prefill", "demo-decode"},
    "networkpolicies": {"demo-conductor", "demo-worker"},
    "secrets": {"demo-api-key", "demo-tls-ca", "demo-conductor-tls",
                "demo-worker-tls"},
    "serviceaccounts": {"demo-conductor", "demo-worker", "default"},
}
QUIET_SECONDS = 5
IDLE_SECONDS = 20


def names(cluster, kind, namespace):
    return {item["metadata"]["name"] for item in cluster.list(kind, namespace)}


def expect_objects(cluster, namespace):
    for kind, wanted in OBJECTS.items():
        found = names(cluster, kind, namespace)
        assert found == wanted, f"{kind}: {found}, expected {wanted}"
        for item in cluster.list(kind, namespace):
            metadata = item["metadata"]
            if metadata["name"] == "default":
                continue
            owners = {owner["kind"] for owner in metadata["ownerReferences"]}
            assert owners <= {"KVCachePool", "PrefillPool", "DecodePool"}
            assert metadata["labels"]["tidepool.dev/kvcachepool"] == "demo"


def wait_until_quiet(cluster):
    """What became Ready has its last words written a moment later."""
    eventually("the controller to have written all", lambda: time.time() -
               cluster.audited_writes()[-1].seconds > QUIET_SECONDS, 60)


def expect_silence(cluster, seconds):
    """Nothing but the Lease is written while nothing happens."""
    before = len(cluster.writes_of_controller())
    time.sleep(seconds)
    writes = cluster.writes_of_controller()[before:]
    assert not writes, f"an idle controller wrote {writes}"


def run(context):
    cluster = context.cluster
    install_rights(context)
    with PretendKubelet(cluster) as kubelet, \
            ControllerProcess(context, "controller") as controller:
        begin = time.monotonic()
        fleet = context.fleet(decode=2)
        eventually("the fleet's objects", lambda: expect_objects(
            cluster, fleet.namespace) is None, 30)
        objects = time.monotonic() - begin
        fleet.wait_ready(60)
        controller.expect_running()

        wait_until_quiet(cluster)
        fleet.apply()
        expect_silence(cluster, IDLE_SECONDS)

        # What somebody else breaks is mended.
        fleet.kubectl("delete", "service", "demo-decode")
        eventually("the Service to be made again", lambda: cluster.get(
            "services", "demo-decode", fleet.namespace), 10)

        # A pod that cannot be placed keeps nothing else from going on.
        kubelet.unschedulable = ["demo-decode-2"]
        fleet.scale("decode", 3)
        eventually("the third decode pod", lambda: len(
            fleet.pods(role="decode")) == 3, 10)
        fleet.scale("prefill", 2)
        eventually("the second prefill pod to be ready", lambda: cluster.get(
            "prefillpools", "demo-prefill", fleet.namespace
            )["status"].get("readyReplicas") == 2, 20)
        kubelet.unschedulable = []
        fleet.wait_ready(30)

        fleet.delete()
        eventually("its objects to be gone", lambda: not any(
            names(cluster, kind, fleet.namespace) - {"default"}
            for kind in OBJECTS), 30)
        controller.expect_running()
        resident = controller.resident_bytes() / (1 << 20)
    return f"objects after {objects:.1f} s, {resident:.0f} MiB resident"
