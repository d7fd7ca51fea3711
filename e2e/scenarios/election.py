"""Two controllers, one leads. When it ends, dies or freezes, the other takes
over, and carries out what was asked for meanwhile."""

import contextlib
import signal

from framework.context import SYSTEM
from framework.controller_process import ControllerProcess, install_rights
from framework.pretend_kubelet import PretendKubelet
from framework.waiting import eventually

LEASE = "tidepool-controller"


def holder(cluster):
    lease = cluster.get("leases", LEASE, SYSTEM)
    return lease and lease["spec"].get("holderIdentity")


def run(context):
    cluster = context.cluster
    install_rights(context)
    with contextlib.ExitStack() as parts:
        parts.enter_context(PretendKubelet(cluster))
        first = parts.enter_context(ControllerProcess(context, "first"))
        eventually("a leader", lambda: holder(cluster), 30)
        second = parts.enter_context(ControllerProcess(context, "second"))
        second.expect_synced()
        fleet = context.fleet().wait_ready(60)

        first.signal(signal.SIGTERM)
        assert first.wait() == 0, f"it ended badly: {first.log}"
        ended = fleet.carried_out("decode", 2, 40)
        first.start().expect_synced()

        second.kill()
        died = fleet.carried_out("decode", 3, 40)
        second.start().expect_synced()

        first.signal(signal.SIGSTOP)
        frozen = fleet.carried_out("decode", 4, 40)
        first.signal(signal.SIGCONT)
        first.expect_synced()
        fleet.wait_ready(30)
    assert ended <= 5 and died <= 5, f"ended {ended:.1f} s, died {died:.1f} s"
    assert frozen <= 15, f"frozen for {frozen:.1f} s"
    return (f"taken over after a leader ended {ended:.1f} s, died "
            f"{died:.1f} s, froze {frozen:.1f} s")
