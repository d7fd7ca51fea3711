"""What a story has at hand: the cluster, the chart, fleets, an oracle."""

import json
import pathlib
import secrets
import shutil

from .cluster import ROOT, restarts
from .fleet import Fleet
from .oracle import Oracle

CHART = ROOT / "helm/tidepool"
SYSTEM = "tidepool-system"
CONTROLLER = "app.kubernetes.io/component=controller"


class Context:
    def __init__(self, cluster, programs, out, next_image=None):
        self.cluster = cluster
        self.programs = pathlib.Path(programs)  # folder of tidepool-…
        self.out = pathlib.Path(out)
        self.next_image = next_image
        self.oracle = Oracle()
        self._fleets, self._namespaces, self._story = [], [], None

    # --- called by the runner ---

    def begin(self, story):
        self._story = story
        shutil.rmtree(self.out / story, ignore_errors=True)

    def end(self):
        """Takes away what the story made; raises when something stayed."""
        fleets, namespaces = self._fleets, self._namespaces
        self._fleets, self._namespaces = [], []
        for fleet in fleets:
            fleet.close()
        problems = []
        for namespace in namespaces:
            try:
                self._remove(namespace)
            except Exception as error:  # the others are to go all the same
                problems.append(f"{namespace}: {error}")
        assert not problems, "\n".join(problems)

    def _remove(self, namespace):
        # Fleets first: a namespace waits for half of the longest grace period
        # among its pods, however soon they end.
        if self.cluster.get("customresourcedefinitions",
                            "kvcachepools.tidepool.dev"):
            self.cluster.kubectl("-n", namespace, "delete", "kvp,pfp,dcp",
                                 "--all", "--wait=false")
        self.cluster.kubectl("delete", "namespace", namespace, "--wait=false",
                             "--ignore-not-found")

    def close(self):
        self.oracle.close()

    def controller_restarts(self):
        """{uid of a controller's pod: its restarts}."""
        return {pod["metadata"]["uid"]: restarts(pod)
                for pod in self.cluster.list(
                    "pods", SYSTEM, labelSelector=CONTROLLER)}

    def expect_no_crash(self, before):
        for uid, count in self.controller_restarts().items():
            assert count <= before.get(uid, 0), \
                f"the controller was restarted {count} times"

    # --- called by stories ---

    def folder(self):
        """Where the story may write."""
        folder = self.out / self._story
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def namespace(self):
        """A new one, which goes with the story."""
        name = f"e2e-{self._story.replace('_', '-')}-{secrets.token_hex(2)}"
        self.cluster.make_namespace(name)
        self._namespaces.append(name)
        return name

    def fleet(self, apply=True, namespace=None, **options):
        """A fleet, not awaited; in a namespace of its own unless told."""
        fleet = Fleet(self.cluster, namespace or self.namespace(), **options)
        self._fleets.append(fleet)
        if apply:
            fleet.apply()
        return fleet

    def chart_values(self, image=None):
        repository, tag = (image or self.cluster.image).rsplit(":", 1)
        return ["--set", f"image.repository={repository}",
                "--set-string", f"image.tag={tag}"]

    def install_chart(self, *flags, image=None):
        self.cluster.helm(
            "upgrade", "--install", "tidepool", CHART, "--namespace", SYSTEM,
            "--create-namespace", "--wait", "--timeout", "90s",
            *self.chart_values(image), *flags)

    def ensure_chart(self):
        """For stories that run alone: the chart, unless it is there."""
        releases = json.loads(self.cluster.helm(
            "list", "--namespace", SYSTEM, "--output", "json"))
        if not releases:
            self.install_chart()
