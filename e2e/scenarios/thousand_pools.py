"""A thousand pools and ten thousand pods: fleets made all at once and one by
one, what the controllers weigh, ten minutes in which nothing is to be written,
and leaders that die and freeze. Kubelets are simulated; conductors never
answer.

Silence is demanded; the other figures depend on the machine, and are told.
TIDEPOOL_SCALE_FLEETS and TIDEPOOL_SCALE_IDLE_SECONDS make it smaller.
"""

import collections
import contextlib
import json
import os
import signal
import time

from framework.controller_process import ControllerProcess, install_rights
from framework.fleet import Fleet
from framework.waiting import eventually

FLEETS = int(os.environ.get("TIDEPOOL_SCALE_FLEETS", 334))
IDLE_SECONDS = int(os.environ.get("TIDEPOOL_SCALE_IDLE_SECONDS", 600))
FLEETS_PER_NAMESPACE = 50
# With two conductors, 30 pods a fleet.
PREFILL, DECODE = 9, 19
SPEC = {"conductor": {"replicas": 2}}
SINGLES = 40
WRITE_OF = {"KVCachePool": "deployments/{0}/{1}-conductor",
            "PrefillPool": "statefulsets/{0}/{1}",
            "DecodePool": "statefulsets/{0}/{1}"}


def create(fleet, asked):
    """Creates its resources, and notes when each was asked for, under the
    write that carries it out."""
    for manifest in fleet.manifests():
        what = WRITE_OF[manifest["kind"]].format(
            fleet.namespace, manifest["metadata"]["name"])
        asked[what] = time.time()
        fleet.cluster.create(manifest, fleet.namespace)


def percentiles(seconds):
    ranked = sorted(seconds)
    return "p50 {:.2f} s, p99 {:.2f} s, max {:.2f} s".format(
        *(ranked[min(len(ranked) - 1, int(len(ranked) * q))]
          for q in (0.5, 0.99, 1)))


def delays(cluster, asked):
    """Seconds from each wish to the first write of what it asks for."""
    first = {}
    for write in cluster.audited_writes():
        first.setdefault(write.what, write.seconds)
    missing = [what for what in asked if what not in first]
    assert not missing, f"never written: {missing}"
    return [first[what] - at for what, at in asked.items()]


def unready(cluster, spaces):
    """Pools whose workloads are not all there, in all namespaces."""
    found = []
    for resource in ("kvcachepools", "prefillpools", "decodepools"):
        for item in cluster.list(resource):
            if item["metadata"]["namespace"] not in spaces:
                continue
            conditions = {c["type"]: c["status"]
                          for c in item.get("status", {}).get("conditions", [])}
            if conditions.get("Ready") != "True":
                found.append(item["metadata"]["name"])
    return found


def wait_ready(cluster, spaces, seconds):
    def all_ready():
        missing = unready(cluster, spaces)
        assert not missing, f"{len(missing)} not Ready, as {missing[:3]}"
        return True
    eventually("every pool to be Ready", all_ready, seconds, interval=2)


def run(context):
    cluster = context.cluster
    install_rights(context)
    figures = []
    with contextlib.ExitStack() as parts:
        leader = parts.enter_context(ControllerProcess(context, "leader"))
        leader.expect_synced()

        def note(text):
            figures.append(text)
            print(f"    {text} ({leader.memory()})", flush=True)

        note("nothing there")

        spaces = [context.namespace()
                  for _ in range(-(-FLEETS // FLEETS_PER_NAMESPACE))]
        fleets = [Fleet(cluster, spaces[i // FLEETS_PER_NAMESPACE], f"f{i}",
                        prefill=PREFILL, decode=DECODE, spec=SPEC)
                  for i in range(FLEETS)]
        begin, asked = time.monotonic(), {}
        for fleet in fleets:
            create(fleet, asked)
        created = time.monotonic() - begin
        wait_ready(cluster, set(spaces), 1800)
        ready = time.monotonic() - begin
        note(f"{3 * FLEETS} pools created in {created:.0f} s, Ready after "
             f"{ready:.0f} s; to applied: {percentiles(delays(cluster, asked))}")

        space, asked = context.namespace(), {}
        singles = [Fleet(cluster, space, f"one{i}", prefill=1, decode=1)
                   for i in range(SINGLES)]
        for fleet in singles:
            create(fleet, asked)
            eventually("it to be applied", lambda: cluster.get(
                "statefulsets", f"{fleet.name}-decode", space), 30)
        single = delays(cluster, asked)
        note(f"{3 * SINGLES} more one by one: to applied: {percentiles(single)}")
        wait_ready(cluster, {space, *spaces}, 120)

        time.sleep(30)  # figures in status follow at most this much later
        before = len(cluster.audited_writes())
        time.sleep(IDLE_SECONDS)
        writes = cluster.audited_writes()[before:]
        kinds = collections.Counter(write.resource for write in writes)
        note(f"idle for {IDLE_SECONDS} s: writes {dict(kinds)}")
        assert not writes, f"an idle controller wrote {writes[:20]}"

        second = parts.enter_context(ControllerProcess(context, "standby"))
        second.expect_synced()
        note(f"the standby: {second.memory()}")
        leader.kill()
        died = singles[0].carried_out("decode", 2, 60)
        leader.start().expect_synced()
        time.sleep(60)  # between terms: everything is looked at once
        second.signal(signal.SIGSTOP)
        frozen = singles[1].carried_out("decode", 2, 60)
        second.signal(signal.SIGCONT)
        note(f"taken over after a leader died {died:.1f} s, froze "
             f"{frozen:.1f} s")
        (context.folder() / "figures.json").write_text(
            json.dumps(figures, indent=1) + "\n")
    return figures[-1]
