"""Runs user stories: brings a cluster up where none is given, one story after
the other, and keeps what is needed to understand those that fail."""

import argparse
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import scenarios

from . import collect
from .cluster import ROOT, SCRIPTS, Cluster, CommandFailed, run
from .context import Context

OUT = ROOT / "build/e2e"
BIN = pathlib.Path(os.environ.get("TIDEPOOL_BIN", ROOT / "build/release/bin"))
CONTROL_PLANES = {"fast": ["--control-plane-only"],
                  "scale": ["--simulated-nodes", "12"]}
STORY_SECONDS_MAX = {"fast": 180, "core": 300, "full": 3600,
                     "scale": 7200}


def options():
    parser = argparse.ArgumentParser(prog="e2e/run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO",
                        help="of any tier; all of the tiers without")
    parser.add_argument("--tier", action="append", choices=scenarios.TIERS,
                        help="repeatable; fast and core without")
    parser.add_argument("--image", help="repository:tag that the nodes of "
                        "KUBECONFIG's cluster have or can pull")
    parser.add_argument("--next-image", help="the same under another tag, for "
                        "upgrades")
    parser.add_argument("--services-reachable", action="store_true",
                        help="this machine reaches the Services of "
                        "KUBECONFIG's cluster; ports are forwarded without")
    parser.add_argument("--work", help="folder of the local cluster; used as "
                        "it is when it is up")
    parser.add_argument("--keep", action="store_true",
                        help="leave the local cluster up")
    parser.add_argument("--may-skip", action="store_true",
                        help="succeed, loudly, where no nodes can be made")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--inside", action="store_true",
                        help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(picked):
    """{tier: [names]} in their order."""
    tiers = picked.tier or (list(scenarios.TIERS) if picked.names
                            else ["fast", "core"])
    known = {name for names in scenarios.TIERS.values() for name in names}
    for name in picked.names:
        if name not in known:
            sys.exit(f"e2e/run: no scenario {name}; there are "
                     f"{', '.join(sorted(known))}")
    return {tier: [name for name in scenarios.TIERS[tier]
                   if not picked.names or name in picked.names]
            for tier in tiers}


class StoryTimeout(AssertionError):
    pass


def limited(seconds, story, context):
    """Calls `story`; whatever it waits for is interrupted in the end."""
    def ring(*_):
        raise StoryTimeout(f"the story took more than {seconds} s")
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        return story(context)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tell(tier, name, context):
    """Runs one story; its result as a row."""
    begin = time.monotonic()
    problem = figures = None
    context.begin(name)
    try:
        story = importlib.import_module(f"scenarios.{name}")
        before = context.controller_restarts()
        figures = limited(STORY_SECONDS_MAX[tier], story.run, context)
        if name not in scenarios.KILL_CONTROLLERS:
            context.expect_no_crash(before)
    except Exception as error:  # a story's failure, told below
        problem = f"{type(error).__name__}: {error}"
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "failure.txt").write_text(traceback.format_exc())
        collect.collect(context.cluster, OUT / name)
    finally:
        context.end()
    seconds = time.monotonic() - begin
    print(f"  {name:18} {'FAILED' if problem else 'ok':6} {seconds:6.1f} s"
          f"  {figures or ''}")
    if problem:
        print("    " + problem.strip().replace("\n", "\n    "))
        print(f"    more in {(OUT / name).relative_to(ROOT)}/")
    return {"tier": tier, "name": name, "seconds": round(seconds, 1),
            "figures": figures, "problem": problem}


def lacking(name, cluster):
    """What the story needs and `cluster` has not, or None."""
    if name in scenarios.LOCAL_ONLY and not cluster.work:
        return "the local cluster"
    if name in scenarios.NEED_SERVICES and not cluster.reaches_services:
        return "--services-reachable: a forwarded port is one conductor's"
    return None


def tell_all(stories, cluster, picked):
    results = []
    context = Context(cluster, BIN, OUT, next_image=picked.next_image)
    try:
        for tier, names in stories.items():
            for name in names:
                lacks = lacking(name, cluster)
                if lacks:
                    print(f"  {name:18} SKIPPED: needs {lacks}")
                    continue
                results.append(tell(tier, name, context))
    finally:
        context.close()
    return results


def report(results, name):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    failed = [row["name"] for row in results if row["problem"]]
    print(f"e2e {name}: {len(results) - len(failed)} of {len(results)} passed"
          + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return not failed


def with_control_plane(tier, names, picked):
    """An API server on loopback, no root: alone, or with simulated nodes."""
    work = pathlib.Path(picked.work or default_work()).with_name(
        f"tidepool-{tier[0]}{os.getpid()}")
    print(f"e2e {tier}: bringing up a control plane", flush=True)
    run(SCRIPTS / "up", *CONTROL_PLANES[tier], work, timeout=1800)
    cluster = Cluster(work / "admin.conf", image=None, work=str(work))
    try:
        return report(tell_all({tier: names}, cluster, picked), tier)
    finally:
        cluster.close()
        run(SCRIPTS / "down", work)


def default_work():
    base = os.environ.get("TMPDIR", "/tmp")
    return os.environ.get("TIDEPOOL_E2E_WORK",
                          f"{base}/tidepool-e2e-{os.getuid()}")


def load_images(work):
    """Builds the image under two tags and gives both to every node."""
    OUT.mkdir(parents=True, exist_ok=True)
    version = run(BIN / "tidepool", "--version").split()[-1]
    names = []
    for tag in (version, f"{version}-next"):
        archive = OUT / "image.tar"
        run(ROOT / "images/build-oci", "--bin", BIN, "--uncompressed",
            "--version", tag, archive, timeout=300)
        run(SCRIPTS / "load", work, archive, timeout=300)
        archive.unlink()
        names.append(f"localhost/tidepool:{tag}")
    return names


def with_nodes(stories, picked):
    """Two nodes on this machine; the stories run inside the network of the
    first, where pods and Services answer."""
    work = picked.work or default_work()
    name = "+".join(stories)
    if not pathlib.Path(work, "nodes").exists():
        print(f"e2e {name}: bringing up two nodes", flush=True)
        try:
            print(run(SCRIPTS / "up", work, timeout=1800).strip())
        except CommandFailed as error:
            subprocess.run([SCRIPTS / "down", work])
            if not picked.may_skip or "needs" not in error.output and \
                    "may not" not in error.output:
                raise
            print(f"\nSKIPPED, NOTHING TESTED: e2e {name}: "
                  f"{error.output.strip()}\n")
            return True
    try:
        begin = time.monotonic()
        image, next_image = load_images(work)
        print(f"e2e {name}: images in the nodes after "
              f"{time.monotonic() - begin:.0f} s", flush=True)
        names = [n for names in stories.values() for n in names]
        tiers = [flag for tier in stories for flag in ("--tier", tier)]
        return subprocess.run(
            [SCRIPTS / "in", work, sys.executable, "-m", "framework.runner",
             "--inside", "--work", work, "--image", image, "--next-image",
             next_image, *tiers, *names]).returncode == 0
    finally:
        if not picked.keep:
            run(SCRIPTS / "down", work, timeout=120)


def on(cluster, stories, picked):
    try:
        return report(tell_all(stories, cluster, picked), "+".join(stories))
    finally:
        cluster.close()


def main():
    picked = options()
    stories = chosen(picked)
    if picked.list:
        for tier, names in stories.items():
            print(f"{tier}: {' '.join(names)}")
        return 0
    passed = True
    if picked.inside:
        cluster = Cluster(os.environ["KUBECONFIG"], picked.image, picked.work)
        return 0 if on(cluster, stories, picked) else 1
    bare = {tier: stories.pop(tier, []) for tier in CONTROL_PLANES}
    stories = {tier: names for tier, names in stories.items() if names}
    for tier, names in bare.items():
        if names:
            passed = with_control_plane(tier, names, picked) and passed
    if stories and "KUBECONFIG" in os.environ:
        if not picked.image:
            sys.exit("e2e/run: --image says which image the nodes of "
                     "KUBECONFIG's cluster run")
        cluster = Cluster(os.environ["KUBECONFIG"], picked.image,
                          reaches_services=picked.services_reachable)
        passed = on(cluster, stories, picked) and passed
    elif stories:
        passed = with_nodes(stories, picked) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
