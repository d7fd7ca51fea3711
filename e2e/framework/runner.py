"""Runs user stories: brings a cluster up where none is given, one story after
the other, and keeps what is needed to understand those that fail."""

import argparse
import contextlib
import fcntl
import importlib
import json
import os
import pathlib
import shutil
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
NO_NODES_HERE = 77  # the status of `cluster/up` where none can be made
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


class StoryTimeout(BaseException):
    """No Exception: whoever waits for something would take it for "not yet"."""


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


def clean_up(context):
    """What stayed of a story, or None."""
    try:
        context.end()
    except Exception as error:
        return f"cleaning up: {type(error).__name__}: {error}"


def tell(tier, name, context):
    """Runs one story; its result as a row."""
    begin = time.monotonic()
    problem = figures = None
    try:
        context.begin(name)
        story = importlib.import_module(f"scenarios.{name}")
        before = context.controller_restarts()
        figures = limited(STORY_SECONDS_MAX[tier], story.run, context)
        if name not in scenarios.KILL_CONTROLLERS:
            context.expect_no_crash(before)
    except (Exception, StoryTimeout) as error:  # its failure, told below
        problem = f"{type(error).__name__}: {error}"
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "failure.txt").write_text(traceback.format_exc())
        collect.collect(context.cluster, OUT / name)
    finally:
        stayed = clean_up(context)
    problem = problem or stayed
    seconds = time.monotonic() - begin
    print(f"  {name:18} {'FAILED' if problem else 'ok':6} {seconds:6.1f} s"
          f"  {figures or ''}")
    if problem:
        print("    " + problem.strip().replace("\n", "\n    "))
        print(f"    more in {(OUT / name).relative_to(ROOT)}/")
    return {"tier": tier, "name": name, "seconds": round(seconds, 1),
            "figures": figures, "problem": problem}


def lacking(name, context):
    """What the story needs and is not there, or None."""
    cluster = context.cluster
    if name in scenarios.LOCAL_ONLY and not cluster.work:
        return "the local cluster"
    if name in scenarios.NEED_SERVICES and not cluster.reaches_services:
        return "--services-reachable: a forwarded port is one conductor's"
    if name in scenarios.NEED_NEXT_IMAGE and not context.next_image:
        return "--next-image"
    return None


def tell_all(stories, cluster, picked):
    results = []
    context = Context(cluster, BIN, OUT, next_image=picked.next_image)
    try:
        for tier, names in stories.items():
            for name in names:
                lacks = lacking(name, context)
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


@contextlib.contextmanager
def held(work):
    """Keeps other runs out of a cluster's folder: for as long as a process of
    this one has the lock, killed or not. BlockingIOError when another has."""
    work.mkdir(parents=True, exist_ok=True)
    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def take_down(work):
    run(SCRIPTS / "down", work, timeout=120)


def sweep(pattern, folder):
    """Takes down control planes whose runs were killed."""
    for work in folder.glob(pattern):
        with contextlib.suppress(OSError, CommandFailed), held(work):
            take_down(work)
            shutil.rmtree(work)


def with_control_plane(tier, names, picked):
    """An API server on loopback, no root: alone, or with simulated nodes."""
    home = pathlib.Path(picked.work or default_work())
    sweep(f"{home.name}-{tier}-*", home.parent)
    work = home.with_name(f"{home.name}-{tier}-{os.getpid()}")
    print(f"e2e {tier}: bringing up a control plane", flush=True)
    with held(work):
        try:
            run(SCRIPTS / "up", *CONTROL_PLANES[tier], work, timeout=1800)
            passed = on(Cluster(work / "admin.conf", None, str(work)),
                        {tier: names}, picked)
        finally:
            take_down(work)
        shutil.rmtree(work)  # its logs: those of failures are kept elsewhere
    return passed


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
        archive = OUT / f"image-{os.getpid()}.tar"
        run(ROOT / "images/build-oci", "--bin", BIN, "--uncompressed",
            "--version", tag, archive, timeout=300)
        run(SCRIPTS / "load", work, archive, timeout=300)
        archive.unlink()
        names.append(f"localhost/tidepool:{tag}")
    return names


def is_up(work):
    """Whether the folder has a cluster that answers, and no killed run's."""
    if not (work / "nodes").exists() or (work / "of-a-run").exists():
        return False
    with contextlib.suppress(CommandFailed, subprocess.TimeoutExpired):
        run(SCRIPTS / "in", work, "kubectl", "get", "nodes", timeout=20)
        return True
    return False


def bring_up(work, name, picked):
    """Two nodes, unless they are up."""
    is_needed = not is_up(work)
    if is_needed:
        take_down(work)
    # Whoever finds this and no lock finds what a killed run left.
    if picked.keep:
        (work / "of-a-run").unlink(missing_ok=True)
    else:
        (work / "of-a-run").touch()
    if is_needed:
        print(f"e2e {name}: bringing up two nodes", flush=True)
        print(run(SCRIPTS / "up", work, timeout=1800).strip(), flush=True)


def with_nodes(stories, picked):
    """Two nodes on this machine; the stories run inside the network of the
    first, where pods and Services answer."""
    work = pathlib.Path(picked.work or default_work())
    try:
        with held(work) as lock:
            return with_nodes_of(work, lock, stories, picked)
    except BlockingIOError:
        sys.exit(f"e2e/run: another run has the cluster in {work}; --work "
                 "names another folder")


def with_nodes_of(work, lock, stories, picked):
    name = "+".join(stories)
    try:
        bring_up(work, name, picked)
        begin = time.monotonic()
        image, next_image = load_images(work)
        print(f"e2e {name}: images in the nodes after "
              f"{time.monotonic() - begin:.0f} s", flush=True)
        names = [n for names in stories.values() for n in names]
        tiers = [flag for tier in stories for flag in ("--tier", tier)]
        return subprocess.run(
            [SCRIPTS / "in", work, sys.executable, "-m", "framework.runner",
             "--inside", "--work", str(work), "--image", image, "--next-image",
             next_image, *tiers, *names],
            pass_fds=[lock]).returncode == 0
    except CommandFailed as error:
        if not picked.may_skip or error.status != NO_NODES_HERE:
            raise
        print(f"\nSKIPPED, NOTHING TESTED: e2e {name}: "
              f"{error.output.strip()}\n")
        return True
    finally:
        if not picked.keep:
            take_down(work)


def on(cluster, stories, picked):
    try:
        return report(tell_all(stories, cluster, picked), "+".join(stories))
    finally:
        cluster.close()


def main():
    picked = options()
    # What was begun is taken away then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
    is_foreign = stories and "KUBECONFIG" in os.environ
    if is_foreign and not picked.image:
        sys.exit("e2e/run: --image says which image the nodes of KUBECONFIG's "
                 "cluster run")
    for tier, names in bare.items():
        if names:
            passed = with_control_plane(tier, names, picked) and passed
    if is_foreign:
        cluster = Cluster(os.environ["KUBECONFIG"], picked.image,
                          reaches_services=picked.services_reachable)
        passed = on(cluster, stories, picked) and passed
    elif stories:
        passed = with_nodes(stories, picked) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
