"""A model on a volume, workers and conductors without a way out of the
cluster: the same tokens as one process gives. The local cluster has no way out
anyway; what elsewhere keeps them in are their NetworkPolicies."""

from framework import oracle
from framework.cluster import ROOT

from .install import ASK, openai_text

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


def ways_out(cluster, namespace):
    """Rules that let more out than names looked up and calls to pods."""
    def is_way_out(rule):
        return any("ipBlock" in peer for peer in rule.get("to", [])) or \
            "to" not in rule and {port["port"] for port in
                                  rule.get("ports", [{"port": "any"}])} != {53}
    policies = cluster.list("networkpolicies", namespace)
    assert all("Egress" in policy["spec"]["policyTypes"] and
               policy["spec"]["podSelector"] for policy in policies)
    assert len(policies) == 2, "conductors and workers have one each"
    return [rule for policy in policies for rule in policy["spec"]["egress"]
            if is_way_out(rule)]


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
        assert openai_text(fleet) == context.oracle.text(ASK)
        found = ways_out(context.cluster, namespace)
        assert not found, f"ways out of the cluster: {found}"
        fleet.delete()
    finally:
        context.cluster.kubectl("delete", "pv", made[0]["metadata"]["name"],
                                "--wait=false")
    return f"{len(bodies)} streams, token for token"
