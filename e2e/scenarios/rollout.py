"""A new version rolls through a fleet under load, one worker at a time; a
second rollout is reverted half-way. No stream fails, no token changes."""

from framework import oracle
from framework.cluster import pod_is_ready
from framework.waiting import eventually


def images(fleet, component=None):
    return [pod["spec"]["containers"][0]["image"]
            for pod in fleet.pods(component=component)]


def all_run(fleet, tag):
    """Conductors as well as workers."""
    return all(image.endswith(":" + tag) for image in images(fleet))


class Watch:
    """How many workers of a pool were away at once while something happened."""

    def __init__(self, fleet, role):
        self._fleet, self._role, self.most_away = fleet, role, 0

    def __call__(self):
        ready = sum(map(pod_is_ready, self._fleet.pods(role=self._role)))
        self.most_away = max(
            self.most_away, self._fleet.pools[self._role]["replicas"] - ready)


def run(context):
    context.ensure_chart()
    now = context.cluster.image.rsplit(":", 1)[1]
    following = context.next_image.rsplit(":", 1)[1]
    fleet = context.fleet(prefill=2, decode=3,
                          spec={"version": now}).wait_ready()
    watches = [Watch(fleet, role) for role in ("prefill", "decode")]
    bodies = oracle.bodies(6, max_tokens=80)
    with fleet.exact_load(4, context.oracle, bodies) as load:
        def watched(check):
            def look():
                for watch in watches:
                    watch()
                return check()
            return look

        rolled = watched(lambda: all_run(fleet, following))
        fleet.patch({"version": following})
        eventually("every pod to run the next version", rolled, 150)
        fleet.wait_ready()

        # Back again, and half-way through that, forward.
        fleet.patch({"version": now})
        eventually("the first worker to be rolled back", watched(lambda: any(
            image.endswith(":" + now)
            for image in images(fleet, "worker"))), 60)
        fleet.patch({"version": following})
        eventually("the reverted rollout to end", rolled, 150)
        fleet.wait_ready()
    load.expect_exact(at_least=20)
    away = [watch.most_away for watch in watches]
    assert max(away) <= 1, f"{away} prefill, decode workers were away at once"
    return f"{len(load.streams)} streams, none failed"
