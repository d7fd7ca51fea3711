"""A new version rolls through a fleet under load, one worker at a time; a
second rollout is reverted half-way. No stream fails, no token changes."""

from framework import oracle
from framework.cluster import pod_is_ready
from framework.waiting import eventually


def images(fleet, role):
    return [pod["spec"]["containers"][0]["image"]
            for pod in fleet.pods(role=role)]


def all_run(fleet, tag):
    return all(image.endswith(":" + tag)
               for role in ("prefill", "decode")
               for image in images(fleet, role))


class Watch:
    """How few ready pods a pool had while something happened."""

    def __init__(self, fleet, role):
        self._fleet, self._role, self.least = fleet, role, 1 << 30

    def __call__(self):
        pods = self._fleet.pods(role=self._role)
        self.least = min(self.least, sum(map(pod_is_ready, pods)))


def run(context):
    context.ensure_chart()
    now = context.cluster.image.rsplit(":", 1)[1]
    following = context.next_image.rsplit(":", 1)[1]
    fleet = context.fleet(prefill=2, decode=3,
                          spec={"version": now}).wait_ready()
    watch = Watch(fleet, "decode")
    bodies = oracle.bodies(6, max_tokens=80)
    with fleet.exact_load(4, context.oracle, bodies) as load:
        fleet.patch({"version": following})

        def rolled():
            watch()
            return all_run(fleet, following)
        eventually("every worker to run the next version", rolled, 150)
        fleet.wait_ready()
        assert watch.least >= 2, \
            f"{3 - watch.least} of 3 decode workers were away at once"

        # Back again, and half-way through that, forward.
        fleet.patch({"version": now})
        eventually("the first worker to be rolled back", lambda: any(
            image.endswith(":" + now) for image in
            images(fleet, "decode") + images(fleet, "prefill")), 60)
        fleet.patch({"version": following})
        fleet.wait_ready(120)
        eventually("the reverted rollout to end",
                   lambda: all_run(fleet, following), 60)
    load.expect_exact(at_least=20)
    return f"{len(load.streams)} streams, none failed"
