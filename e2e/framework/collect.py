"""What is needed to understand a failure, gathered while it is still there."""

import pathlib
import shutil
import subprocess

from .cluster import pod_is_ready, restarts

LOG_BYTES_MAX = 4 << 20
PODS_MAX = 50


def collect(cluster, folder):
    """Writes resources, events and logs of every Tidepool namespace below
    `folder`. Never raises: it runs when something is wrong already."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def save(name, *command):
        try:
            done = subprocess.run(
                command, env=cluster.environment, timeout=30,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            (folder / name).write_bytes(done.stdout[-LOG_BYTES_MAX:])
        except (OSError, subprocess.TimeoutExpired) as error:
            (folder / name).write_text(f"{command}: {error}")

    save("overview.txt", "kubectl", "get", "-A", "-o", "wide",
         "nodes,pods,deploy,sts,svc,pdb,networkpolicies,leases,pvc")
    save("events.txt", "kubectl", "get", "events", "-A",
         "--sort-by=.lastTimestamp")
    save("tidepool.yaml", "kubectl", "get", "-A", "-o", "yaml",
         "kvcachepools,prefillpools,decodepools")
    try:
        pods = cluster.list("pods",
                            labelSelector="app.kubernetes.io/name=tidepool")
    except Exception as error:  # the API server may be what is broken
        (folder / "pods.txt").write_text(f"no list of pods: {error}")
        pods = []
    # Those that are not well first.
    pods.sort(key=lambda pod: pod_is_ready(pod) and not restarts(pod))
    for pod in pods[:PODS_MAX]:
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        save(f"{space}.{name}.describe.txt", "kubectl", "-n", space,
             "describe", "pod", name)
        for suffix, flags in (("log", []), ("previous.log", ["--previous"])):
            save(f"{space}.{name}.{suffix}", "kubectl", "-n", space, "logs",
                 name, "--all-containers", "--timestamps", *flags)
    if cluster.work:
        try:
            shutil.copytree(pathlib.Path(cluster.work) / "log",
                            folder / "cluster", dirs_exist_ok=True)
        except OSError as error:  # of files that come and go
            (folder / "cluster.txt").write_text(f"{error}")
