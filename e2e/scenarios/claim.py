"""A model on a volume, workers and conductors without a way out of the
cluster: the same tokens as one process gives."""

from framework import oracle
from framework.cluster import ROOT

FOLDER = ROOT / "models"  # holds demo/


def volume(namespace):
    """A claim for the model's folder, bound to it by name."""
    name = f"{namespace}-models"
    kinds = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume",
         "metadata": {"name": name},
         "spec": {**kinds, "capacity": size, "hostPath": {"path": str(FOLDER)},
                  "persistentVolumeReclaimPolicy": "Retain",
                  "claimRef": {"namespace": namespace, "name": "models"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
         "metadata": {"name": "models", "namespace": namespace},
         "spec": {**kinds, "resources": {"requests": size},
                  "volumeName": name}},
    ]


def run(context):
    context.ensure_chart()
    namespace = context.namespace()
    made = volume(namespace)
    context.cluster.apply(*made)
    try:
        fleet = context.fleet(namespace=namespace, spec={
            "model": {"uri": "pvc://models/demo"}})
        fleet.wait_ready()
        bodies = oracle.bodies(8)
        fleet.expect_serving(bodies, context.oracle.tokens(bodies))
        fleet.delete()
    finally:
        context.cluster.kubectl("delete", "pv", made[0]["metadata"]["name"],
                                "--wait=false")
    return f"{len(bodies)} streams, token for token"
