"""Stands in for scheduler and kubelets where there is an API server alone:
every pod is on one node, Ready at once, and gone when deleted. Nothing runs."""

import datetime
import json
import threading

import httpx

NODE = "pretend"
HEARTBEAT_TICKS = 20
TICK_SECONDS = 0.2


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ")


class PretendKubelet:
    """Works on a thread of its own, from `with` to its end."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        # Pods whose names begin with one of these stay Pending.
        self.unschedulable = ()

    def __enter__(self):
        self._send("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join(10)

    def _send(self, method, path, body, kind="application/json", **params):
        return self._cluster.send(method, path, json.dumps(body), kind,
                                  **params)

    def _work(self):
        ticks = 0
        while not self._ending.wait(TICK_SECONDS):
            try:
                if ticks % HEARTBEAT_TICKS == 0:
                    self._beat()
                ticks += 1
                for pod in self._cluster.list("pods"):
                    self._care(pod)
            except httpx.HTTPError:
                continue  # the API server is away; stories do that

    def _beat(self):
        self._patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Pretended",
             "message": "", "lastHeartbeatTime": now()}]}})

    def _patch(self, path, body):
        return self._send("PATCH", path, body,
                          "application/strategic-merge-patch+json")

    def _care(self, pod):
        metadata, spec = pod["metadata"], pod["spec"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/" \
               f"{metadata['name']}"
        if "deletionTimestamp" in metadata:
            self._send("DELETE", path, {}, gracePeriodSeconds="0")
        elif not spec.get("nodeName"):
            if not metadata["name"].startswith(tuple(self.unschedulable)):
                self._send("POST", path + "/binding", {
                    "metadata": {"name": metadata["name"]},
                    "target": {"kind": "Node", "name": NODE}})
        elif pod["status"].get("phase") == "Pending":
            self._patch(path + "/status", self._running(spec))

    @staticmethod
    def _running(spec):
        return {"status": {
            "phase": "Running", "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}], "startTime": now(),
            "conditions": [{"type": kind, "status": "True",
                            "lastTransitionTime": now()}
                           for kind in ("Initialized", "PodScheduled",
                                        "ContainersReady", "Ready")],
            "containerStatuses": [
                {"name": container["name"], "image": container["image"],
                 "imageID": "pretend", "ready": True, "started": True,
                 "restartCount": 0, "containerID": "pretend://1",
                 "state": {"running": {"startedAt": now()}}}
                for container in spec["containers"]]}}
