"""Who may reach a fleet: its namespace and the gateways named, nobody else;
what workers say of themselves (HTTP) is for its namespace alone."""

import re

from framework import oracle
from framework.waiting import eventually

RESTRICTED = {
    "allowPrivilegeEscalation": False, "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"}}
GATEWAY = {"team": "edge"}
WORKER_HTTP = 7002
# `tidepool complete` when nothing came back, not even a refusal.
SILENCE = re.compile(r"is not ready after \d+ s:\s*(.*time(d |)out.*)?$", re.I)


def ask(context, namespace, name, url, api_key):
    """A pod that sends one request to `url`."""
    context.cluster.apply({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "ask", "image": context.cluster.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["tidepool", "complete", "--url", url, "--wait", "5",
                        "--api-key", api_key, "--max-tokens", "3", "Once"],
            "securityContext": RESTRICTED}]}})


def outcome(cluster, namespace, name):
    """served, answered (but not with tokens), or silence; and what it said."""
    def ended():
        seen = cluster.get("pods", name, namespace)["status"]["phase"]
        assert seen in ("Succeeded", "Failed"), seen
        return seen
    phase = eventually(f"pod {namespace}/{name} to end", ended, 60)
    said = cluster.kubectl("-n", namespace, "logs", name).strip()
    return "served" if phase == "Succeeded" else \
        "silence" if SILENCE.search(said) else "answered", said


def run(context):
    context.ensure_chart()
    cluster = context.cluster
    fleet = context.fleet(spec={"networkPolicy": {
        "gatewayNamespaceSelector": {"matchLabels": GATEWAY}}}).wait_ready()
    # Names are resolved, workers reached, KV sent: all through the policies.
    bodies = oracle.bodies(4)
    fleet.expect_serving(bodies, context.oracle.tokens(bodies))

    strangers, edge = context.namespace(), context.namespace()
    cluster.kubectl("label", "namespace", edge,
                    *(f"{key}={value}" for key, value in GATEWAY.items()))
    gateway = f"http://{fleet.name}-conductor.{fleet.namespace}.svc"
    worker = f"http://{fleet.name}-decode.{fleet.namespace}.svc:{WORKER_HTTP}"
    asked = [(fleet.namespace, "neighbour", gateway, "served"),
             (edge, "edge", gateway, "served"),
             (strangers, "stranger", gateway, "silence"),
             (fleet.namespace, "scraper", worker, "answered"),
             (edge, "snoop", worker, "silence")]
    for namespace, name, url, _ in asked:
        ask(context, namespace, name, url, fleet.api_key)
    for namespace, name, _, expected in asked:
        seen, said = outcome(cluster, namespace, name)
        assert seen == expected, \
            f"{namespace}/{name}: {seen}, not {expected}: {said}"
    return "in: its namespace and the gateway's; nobody else"
