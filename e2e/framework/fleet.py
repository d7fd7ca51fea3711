"""A fleet of Tidepool: the three manifests, and what became of them."""

import base64
import re
import time

import httpx

from . import load
from .cluster import condition, pod_is_ready, restarts
from .served import Served
from .waiting import eventually

API = "tidepool.dev/v1alpha1"
# Little is requested, so that many fit on small nodes; bursts are welcome.
RESOURCES = {"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}}
READY_SECONDS = 90
ROUTABLE_SECONDS = 5


def merged(base, more):
    """`base` with `more` in it, objects merged key by key."""
    if not isinstance(base, dict) or not isinstance(more, dict):
        return more
    return {**base, **{key: merged(base.get(key), value)
                       for key, value in more.items()}}


class Fleet:
    """KVCachePool NAME with NAME-prefill and NAME-decode in a namespace."""

    def __init__(self, cluster, namespace, name="demo", *, prefill=1, decode=1,
                 spec=None, prefill_spec=None, decode_spec=None):
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.spec = merged({"model": {"uri": "demo"}}, spec or {})
        self.pools = {
            "prefill": self._pool(prefill, prefill_spec),
            "decode": self._pool(decode, decode_spec)}
        self._forward = None

    def _pool(self, replicas, spec):
        """`replicas` None: not stated, somebody else's business."""
        stated = {} if replicas is None else {"replicas": replicas}
        return merged({"kvCachePoolRef": {"name": self.name}, **stated,
                       "resources": RESOURCES}, spec or {})

    # --- what the user writes ---

    def manifests(self):
        kinds = [("KVCachePool", self.name, self.spec)]
        for role, kind in (("prefill", "PrefillPool"),
                           ("decode", "DecodePool")):
            if self.pools[role].get("replicas", 1) > 0:
                kinds.append((kind, f"{self.name}-{role}", self.pools[role]))
        return [{"apiVersion": API, "kind": kind, "metadata": {"name": name},
                 "spec": spec} for kind, name, spec in kinds]

    def apply(self):
        return self.cluster.apply(*self.manifests(), namespace=self.namespace)

    def scale(self, role, replicas):
        resource = {"prefill": "prefillpool", "decode": "decodepool"}[role]
        self.pools[role]["replicas"] = replicas
        self.kubectl("scale", f"{resource}/{self.name}-{role}",
                     f"--replicas={replicas}")

    def carried_out(self, role, replicas, timeout):
        """Seconds until somebody carries out a change asked for now."""
        begin = time.monotonic()
        self.scale(role, replicas)
        eventually("a change to be carried out", lambda: self.cluster.get(
            "statefulsets", f"{self.name}-{role}", self.namespace
            )["spec"]["replicas"] == replicas, timeout, interval=0.05)
        return time.monotonic() - begin

    def patch(self, spec):
        """Changes the KVCachePool's spec as `kubectl patch` does."""
        self.spec = merged(self.spec, spec)
        self.apply()

    def close(self):
        """Ends what runs here for it; the cluster is left alone."""
        if self._forward:
            self._forward.close()
            self._forward = None

    def delete(self, timeout=150):
        self.cluster.kubectl(
            "-n", self.namespace, "delete", "kvp,pfp,dcp", "--all",
            f"--timeout={timeout}s", timeout=timeout + 10)

    def kubectl(self, *args, **options):
        return self.cluster.kubectl("-n", self.namespace, *args, **options)

    # --- what became of it ---

    def resource(self):
        return self.cluster.get("kvcachepools", self.name, self.namespace)

    def pool(self, role):
        return self.cluster.get(f"{role}pools", f"{self.name}-{role}",
                                self.namespace)

    def pods(self, component=None, role=None):
        """Pods of the fleet; `role` is that of the pool which owns them."""
        labels = [f"tidepool.dev/kvcachepool={self.name}"]
        if component:
            labels.append(f"app.kubernetes.io/component={component}")
        if role:
            labels.append(f"tidepool.dev/pool={self.name}-{role}")
        return sorted(
            self.cluster.list("pods", self.namespace,
                              labelSelector=",".join(labels)),
            key=lambda pod: pod["metadata"]["name"])

    def uids(self, **which):
        """What tells whether a pod was replaced or restarted."""
        return {(pod["metadata"]["uid"], restarts(pod))
                for pod in self.pods(**which)}

    def wait_ready(self, timeout=READY_SECONDS):
        """Ready says the controller, of the spec as it is now; and every pod
        that should be there is."""
        def ready():
            problem = self._not_ready(self.resource(), "KVCachePool")
            for role, spec in self.pools.items():
                if problem or spec.get("replicas") == 0:
                    continue
                pool = self.pool(role)
                problem = self._not_ready(pool, role) or \
                    self._pods_missing(role, pool["spec"]["replicas"])
            if problem:
                raise AssertionError(problem)
            return True
        eventually(f"fleet {self.namespace}/{self.name} to be Ready", ready,
                   timeout)
        if self.cluster.image:  # else nothing runs
            self._expect_routable()
        return self

    def _expect_routable(self):
        """Ready means that clients get through. The controller allows the
        nodes' proxies two seconds; on a busy machine they may take longer."""
        eventually(f"{self.url} to answer", lambda: httpx.get(
            self.url + "/health").raise_for_status(), ROUTABLE_SECONDS)

    @staticmethod
    def _not_ready(resource, what):
        if resource is None:
            return f"no {what}"
        state = condition(resource, "Ready")
        if state is None:
            return f"{what} says nothing of Ready for its generation"
        return None if state[0] == "True" else \
            f"{what} is not Ready: {state[1]}: {state[2]}"

    def _pods_missing(self, role, replicas):
        pods = self.pods(role=role)
        ready = sum(map(pod_is_ready, pods))
        return None if ready == replicas == len(pods) else \
            f"{role}: {ready} ready of {len(pods)} pods, {replicas} wanted"

    # --- what it serves ---

    @property
    def api_key(self):
        name = self.resource()["status"]["apiKeySecretName"]
        secret = self.cluster.get("secrets", name, self.namespace)
        return base64.b64decode(secret["data"]["api-key"]).decode()

    @property
    def url(self):
        """Where this process reaches the conductors' Service."""
        service = f"{self.name}-conductor"
        if not self.cluster.reaches_services:
            return self._forwarded(service)
        spec = self.cluster.get("services", service, self.namespace)["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def _forwarded(self, service):
        if self._forward is None or not self._forward.is_running():
            self.close()
            self._forward = Served(
                ["kubectl", "-n", self.namespace, "port-forward",
                 f"service/{service}", ":80"], self.cluster.environment)
        return self._forward.url

    def metric(self, name, **labels):
        """The sum over a conductor's series of `name` that carry `labels`."""
        text = httpx.get(self.url + "/metrics", timeout=5).text
        found = re.findall(rf"^{name}((?:{{.*}})?) (\S+)$", text, re.M)
        assert found, f"/metrics has no {name}"
        return sum(float(value) for series, value in found
                   if all(f'{label}="{wanted}"' in series
                          for label, wanted in labels.items()))

    def load(self, clients, body_of):
        return load.Load(self.url, body_of, clients, api_key=self.api_key)

    def exact_load(self, clients, oracle, bodies):
        """Streams of `bodies`, in turn, until its end; what they bring is
        compared with what the oracle gives."""
        return load.ExactLoad(self.url, bodies, oracle.tokens(bodies), clients,
                              api_key=self.api_key)

    def stream_all(self, bodies):
        return load.stream_all(self.url, bodies, self.api_key)

    def expect_serving(self, bodies, expected):
        """Streams all of `bodies`, alone with the fleet, and compares the
        tokens with those expected."""
        for stream, tokens in zip(self.stream_all(bodies), expected):
            if not stream.complete:
                raise AssertionError(f"a stream failed: {stream}")
            if stream.tokens != tokens:
                raise AssertionError(
                    f"other tokens for {stream.prompt!r}: {stream.tokens}, "
                    f"expected {tokens}")
