"""Who may reach a fleet: its namespace and the gateways named, nobody else;
and nobody but its conductors reaches its workers."""

from framework import oracle
from framework.waiting import eventually

RESTRICTED = {
    "allowPrivilegeEscalation": False, "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"}}
GATEWAY = {"team": "edge"}


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


def expect(cluster, namespace, name, phase):
    def ended():
        seen = cluster.get("pods", name, namespace)["status"]["phase"]
        assert seen in ("Succeeded", "Failed"), seen
        return seen
    seen = eventually(f"pod {namespace}/{name} to end", ended, 60)
    assert seen == phase, f"{namespace}/{name}: {seen}, not {phase}:\n" + \
        cluster.kubectl("-n", namespace, "logs", name)


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
    worker = f"http://{fleet.name}-decode.{fleet.namespace}.svc:7002"
    asked = [(fleet.namespace, "neighbour", gateway, "Succeeded"),
             (edge, "edge", gateway, "Succeeded"),
             (strangers, "stranger", gateway, "Failed"),
             (edge, "snoop", worker, "Failed")]
    for namespace, name, url, _ in asked:
        ask(context, namespace, name, url, fleet.api_key)
    for namespace, name, _, phase in asked:
        expect(cluster, namespace, name, phase)
    return "in: its namespace and the gateway's; nobody else"
