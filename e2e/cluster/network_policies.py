"""network_policies.py WORK: enforces NetworkPolicies in the local cluster.

The CNI plugins of a distribution enforce none, so a policy that shuts too much
would show on a user's cluster first. This reads policies, pods and namespaces
twice a second and gives every node an nftables table for what it forwards,
which is all traffic of pods. As with most network plugins, nodes themselves
(probes, and scenarios, which run on node 1) are let through. IPv4 only.
"""

import http.client
import ipaddress
import json
import pathlib
import re
import ssl
import subprocess
import sys
import time
import urllib.request

TICK_SECONDS = 0.5
TABLE = "inet tidepool_e2e"
NODES = "10.77.0.0/24"


class Api:
    """Reads of the API server, as the administrator."""

    def __init__(self, work):
        config = (work / "admin.conf").read_text()
        self._server = re.search(r'server: "(.*)"', config).group(1)
        self._tls = ssl.create_default_context(cafile=work / "pki/ca.crt")
        self._tls.load_cert_chain(work / "pki/admin.crt",
                                  work / "pki/admin.key")

    def list(self, path):
        with urllib.request.urlopen(self._server + path, timeout=5,
                                    context=self._tls) as answer:
            return json.load(answer)["items"]


def matches(selector, labels):
    """What a label selector says of labels; {} selects everything."""
    def holds(rule):
        key, values = rule["key"], rule.get("values") or []
        return {"In": labels.get(key) in values,
                "NotIn": labels.get(key) not in values,
                "Exists": key in labels,
                "DoesNotExist": key not in labels}[rule["operator"]]

    return all(labels.get(key) == value for key, value in
               (selector.get("matchLabels") or {}).items()) and \
        all(map(holds, selector.get("matchExpressions") or []))


class World:
    """Pods with addresses, namespaces and policies at one moment."""

    def __init__(self, api):
        self.spaces = {item["metadata"]["name"]: labels_of(item)
                       for item in api.list("/api/v1/namespaces")}
        self.pods = [pod for pod in api.list("/api/v1/pods")
                     if pod["status"].get("podIP")
                     and not pod["spec"].get("hostNetwork")
                     and pod["status"]["phase"] in ("Pending", "Running")]
        self.policies = api.list("/apis/networking.k8s.io/v1/networkpolicies")

    def addresses(self, peer, space):
        """nft's set of what a peer of a policy in `space` selects."""
        if "ipBlock" in peer:
            block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
            return [] if block.version == 6 else [
                str(part) for part in without(
                    block, peer["ipBlock"].get("except") or [])]
        return [pod["status"]["podIP"] for pod in self.pods
                if self._selects(peer, space, pod)]

    def _selects(self, peer, space, pod):
        home = pod["metadata"]["namespace"]
        in_space = matches(peer["namespaceSelector"],
                           self.spaces.get(home, {})) \
            if "namespaceSelector" in peer else home == space
        return in_space and matches(peer.get("podSelector") or {},
                                    labels_of(pod))


def labels_of(item):
    return item["metadata"].get("labels") or {}


def without(block, exceptions):
    parts = [block]
    for text in exceptions:
        gap = ipaddress.ip_network(text)
        parts = [piece for part in parts for piece in (
            part.address_exclude(gap) if gap.subnet_of(part) else [part])]
    return parts


def port_matches(rule, pod):
    """nft's matches for a rule's ports; [""] when it names none. A port's name
    is that of the receiving pod, which is `pod` for ingress."""
    found = []
    for port in rule.get("ports") or []:
        protocol, number = port.get("protocol", "TCP").lower(), port.get("port")
        if number is None:
            found.append(f"meta l4proto {protocol}")
        elif isinstance(number, int):
            last = f"-{port['endPort']}" if "endPort" in port else ""
            found.append(f"{protocol} dport {number}{last}")
        elif pod:
            found += [f"{protocol} dport {named['containerPort']}"
                      for container in pod["spec"]["containers"]
                      for named in container.get("ports") or []
                      if named.get("name") == number]
    return found if rule.get("ports") else [""]


def chain(world, pod, direction):
    """The rules of one pod in one direction, or None when it is not isolated."""
    peers_of, side = {"Ingress": ("from", "saddr"),
                      "Egress": ("to", "daddr")}[direction]
    policies = [p for p in world.policies
                if p["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and direction in p["spec"]["policyTypes"]
                and matches(p["spec"]["podSelector"], labels_of(pod))]
    if not policies:
        return None
    lines = []
    for policy in policies:
        for rule in policy["spec"].get(direction.lower()) or []:
            where = [""]
            if rule.get(peers_of):
                found = sorted({address for peer in rule[peers_of]
                                for address in world.addresses(
                                    peer, policy["metadata"]["namespace"])})
                where = [f"ip {side} {{ {', '.join(found)} }} "] if found \
                    else []
            receiver = pod if direction == "Ingress" else None
            lines += [f"{place}{port} return" for place in where
                      for port in port_matches(rule, receiver)]
    return [*lines, "counter drop"]


def ruleset(world):
    """One nft script for all nodes: each forwards its own pods' packets."""
    chains, forward = [], [
        "ct state established,related accept", f"ip saddr {NODES} accept"]
    for pod in sorted(world.pods, key=lambda pod: pod["status"]["podIP"]):
        address = pod["status"]["podIP"]
        for direction, side in (("Ingress", "daddr"), ("Egress", "saddr")):
            rules = chain(world, pod, direction)
            if rules is None:
                continue
            name = f"{direction.lower()}_{address.replace('.', '_')}"
            chains.append(f"chain {name} {{\n" + "\n".join(rules) + "\n}")
            forward.append(f"ip {side} {address} jump {name}")
    return "\n".join([
        f"table {TABLE} {{}}", f"delete table {TABLE}", f"table {TABLE} {{",
        *chains, "chain forward {",
        "type filter hook forward priority 0; policy accept;", *forward,
        "}", "}", ""])


def enforce(work, script):
    for pid in sorted((work / "run").glob("node*.pid")):
        subprocess.run(
            ["nsenter", "-t", pid.read_text().strip(), "-n", "nft", "-f", "-"],
            input=script, text=True, check=True, timeout=10)


def main():
    work = pathlib.Path(sys.argv[1])
    api, enforced = Api(work), None
    while True:
        try:
            script = ruleset(World(api))
            if script != enforced:
                enforce(work, script)
                enforced = script
                print(f"enforced {script.count('chain ') - 1} chains",
                      flush=True)
        # ValueError and HTTPException: an answer that was cut off.
        except (OSError, ValueError, http.client.HTTPException,
                subprocess.SubprocessError) as error:
            print(f"not this time: {error}", flush=True)
        time.sleep(TICK_SECONDS)


if __name__ == "__main__":
    main()
