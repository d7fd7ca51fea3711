"""A Kubernetes cluster, as its administrator sees it."""

import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import typing

import httpx

from .served import Served
from .waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "e2e/cluster"

GROUPS = {
    "api/v1": ["namespaces", "nodes", "pods", "services", "secrets", "events",
               "configmaps", "persistentvolumes", "persistentvolumeclaims",
               "serviceaccounts", "endpoints"],
    "apis/apps/v1": ["deployments", "statefulsets", "replicasets"],
    "apis/autoscaling/v2": ["horizontalpodautoscalers"],
    "apis/batch/v1": ["jobs"],
    "apis/coordination.k8s.io/v1": ["leases"],
    "apis/discovery.k8s.io/v1": ["endpointslices"],
    "apis/networking.k8s.io/v1": ["networkpolicies", "ingresses"],
    "apis/policy/v1": ["poddisruptionbudgets"],
    "apis/rbac.authorization.k8s.io/v1": [
        "clusterroles", "clusterrolebindings", "roles", "rolebindings"],
    "apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
    "apis/tidepool.dev/v1alpha1": ["kvcachepools", "prefillpools",
                                   "decodepools"],
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class CommandFailed(AssertionError):
    """kubectl, helm or a script said no; `output` is all it printed."""

    def __init__(self, command, status, output):
        super().__init__(f"{' '.join(map(str, command))}:\n{output.strip()}")
        self.status, self.output = status, output


class AuditedWrite(typing.NamedTuple):
    verb: str
    resource: str
    what: str  # resource/namespace/name, with /subresource
    seconds: float  # since 1970, when it was done
    accepted: bool

    @staticmethod
    def of(entry, what):
        done = datetime.datetime.fromisoformat(
            entry["stageTimestamp"].replace("Z", "+00:00"))
        return AuditedWrite(
            entry["verb"], what.get("resource"),
            "/".join(filter(None, (
                what.get("resource"), what.get("namespace"), what.get("name"),
                what.get("subresource")))),
            done.timestamp(),
            entry.get("responseStatus", {}).get("code", 500) < 400)


def run(*command, stdin=None, timeout=60, env=None):
    """What the command prints; its failure carries all it printed."""
    done = subprocess.run(
        list(map(str, command)), input=stdin, text=True, timeout=timeout,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=env)
    if done.returncode:
        raise CommandFailed(command, done.returncode, done.stdout)
    return done.stdout


class Cluster:
    """Reads through `kubectl proxy`, so that any kubeconfig will do and a poll
    costs no process; writes through kubectl, as users do."""

    def __init__(self, kubeconfig, image, work=None, reaches_services=False):
        self.kubeconfig = pathlib.Path(kubeconfig)
        self.image = image  # repository:tag, present on every node
        self.work = work  # the folder of `cluster/up`; None elsewhere
        self.reaches_services = reaches_services or work is not None
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        if work:
            self.environment["PATH"] = f"{work}/bin:{os.environ['PATH']}"
        self._proxy = Served(["kubectl", "proxy", "--port=0"],
                             self.environment)
        self._api = httpx.Client(base_url=self._proxy.url, timeout=10)

    def close(self):
        self._api.close()
        self._proxy.close()

    # --- reading ---

    def list(self, resource, namespace=None, **params):
        """Objects of a namespace, or of all; `params` as the API takes them
        (labelSelector, fieldSelector)."""
        return self._get(self._path(resource, namespace), params)["items"]

    def get(self, resource, name, namespace=None):
        """The object, or None."""
        try:
            return self._get(self._path(resource, namespace) + "/" + name, {})
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                return None
            raise

    def raw(self, path):
        answer = self._api.get(path)
        answer.raise_for_status()
        return answer.text

    # --- writing ---

    def kubectl(self, *args, stdin=None, timeout=60):
        return run("kubectl", *args, stdin=stdin, timeout=timeout,
                   env=self.environment)

    def helm(self, *args, timeout=180):
        return run("helm", *args, timeout=timeout, env=self.environment)

    def apply(self, *manifests, namespace=None):
        """Applies manifests (objects, or YAML text) as a user would."""
        text = "\n---\n".join(m if isinstance(m, str) else json.dumps(m)
                              for m in manifests)
        where = ["-n", namespace] if namespace else []
        return self.kubectl("apply", *where, "-f", "-", stdin=text)

    def send(self, method, path, text, content_type, **params):
        """One write past kubectl; the API's answer, good or bad."""
        return self._api.request(method, path, content=text.encode(),
                                 headers={"Content-Type": content_type},
                                 params=params)

    def create(self, manifest, namespace):
        """Makes an object that must not exist yet; costs no process."""
        resource = manifest["kind"].lower() + "s"
        self.send("POST", self._path(resource, namespace),
                  json.dumps(manifest), "application/json").raise_for_status()

    def make_namespace(self, name):
        """A namespace that refuses what Pod Security calls unrestricted."""
        self.apply({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted"}}})

    # --- what only the local cluster can ---

    def program(self, action, name):
        """stop, start, freeze or thaw kube-apiserver, kubelet2…"""
        run(SCRIPTS / "program", self.work, action, name)

    @contextlib.contextmanager
    def without_api(self):
        """The API server is away for the time of the block. So is the controller
        manager, as one that cannot renew its Lease: going on, it would take
        every node for lost before their kubelets are back to say otherwise."""
        self.program("stop", "kube-apiserver")
        self.program("stop", "kube-controller-manager")
        try:
            yield
        finally:
            self.program("start", "kube-apiserver")
            try:
                eventually("the API server to answer",
                           lambda: self.raw("/readyz") == "ok", 60)
            finally:
                self.program("start", "kube-controller-manager")

    def signal(self, pod, name="SIGKILL"):
        """Sends a signal to the process of a pod's only container."""
        status, = pod["status"]["containerStatuses"]
        run(SCRIPTS / "kill", self.work, pod["spec"]["nodeName"],
            status["containerID"].removeprefix("containerd://"), name)

    def set_link(self, node, up):
        """Cuts a node off the network, or connects it again."""
        run(SCRIPTS / "link", self.work, node, "up" if up else "down")

    def writes_of_controller(self):
        """(verb, resource/namespace/name) of every write that Tidepool's
        controller made but those of its Lease, in order; of other clusters
        nothing is known."""
        return [(write.verb, write.what) for write in self.audited_writes()]

    def audited_writes(self):
        """The same with when each was done and whether it was accepted."""
        if not self.work:
            return []
        writes = []
        with open(pathlib.Path(self.work) / "log/audit.log") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    break  # is being written
                entry = json.loads(line)
                what = entry.get("objectRef", {})
                if ":tidepool" in entry["user"]["username"] and \
                        what.get("resource") != "leases":
                    writes.append(AuditedWrite.of(entry, what))
        return writes

    # --- inside ---

    def _path(self, resource, namespace):
        space = f"/namespaces/{namespace}" if namespace else ""
        return f"/{GROUP_OF[resource]}{space}/{resource}"

    def _get(self, path, params):
        answer = self._api.get(path, params=params)
        answer.raise_for_status()
        return answer.json()


def condition(resource, kind):
    """The condition's (status, reason, message) if it speaks of the spec as it
    is now, else None."""
    generation = resource["metadata"]["generation"]
    for entry in resource.get("status", {}).get("conditions", []):
        if entry["type"] == kind and \
                entry.get("observedGeneration", generation) == generation:
            return (entry["status"], entry.get("reason"),
                    entry.get("message"))
    return None


def pod_is_ready(pod):
    return "deletionTimestamp" not in pod["metadata"] and any(
        entry["type"] == "Ready" and entry["status"] == "True"
        for entry in pod["status"].get("conditions", []))


def restarts(pod):
    return sum(entry["restartCount"]
               for entry in pod["status"].get("containerStatuses", []))
