"""Upgrading the chart changes the controller and no pod of a fleet."""

from framework import oracle
from framework.context import CONTROLLER, SYSTEM


def controller_images(cluster):
    return {pod["spec"]["containers"][0]["image"] for pod in cluster.list(
        "pods", SYSTEM, labelSelector=CONTROLLER)
        if "deletionTimestamp" not in pod["metadata"]}


def run(context):
    cluster = context.cluster
    context.install_chart()
    fleet = context.fleet().wait_ready()
    before, version = fleet.uids(), fleet.resource()["status"]["version"]
    bodies = oracle.bodies(4)
    try:
        with fleet.exact_load(3, context.oracle, bodies) as load:
            context.install_chart(image=context.next_image)
            assert context.next_image in controller_images(cluster)
            fleet.wait_ready()
            # The new controller carries changes out, with the old release.
            fleet.scale("decode", 2)
            fleet.wait_ready()
        load.expect_exact()
        assert before <= fleet.uids(), "the upgrade replaced pods"
        assert fleet.resource()["status"]["version"] == version
        tags = {pod["spec"]["containers"][0]["image"].rsplit(":", 1)[1]
                for pod in fleet.pods()}
        assert tags == {version}, f"pods run {tags}, the fleet is {version}"
    finally:
        context.install_chart()
    return f"{len(load.streams)} streams, none failed, the same pods"
