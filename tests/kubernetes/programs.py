"""The programs of Kubernetes that tests use, and an API server to try things.

Nothing is built here: `e2e/cluster/build --fast` does that. A test whose
programs are not there is skipped, and says so.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "e2e/cluster"


def _cache():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "tidepool/kube"


def find(name):
    """The path of a program: in TIDEPOOL_KUBE_BIN, built for e2e, on PATH.

    Raises SkipTest if there is none.
    """
    folders = [os.environ.get("TIDEPOOL_KUBE_BIN", "")]
    folders += sorted(map(str, _cache().glob("*")), reverse=True)
    for folder in filter(None, folders):
        program = pathlib.Path(folder) / name
        if os.access(program, os.X_OK) and program.is_file():
            return str(program)
    program = shutil.which(name)
    if program:
        return program
    raise unittest.SkipTest(
        f"SKIPPED: there is no {name} in TIDEPOOL_KUBE_BIN ('"
        f"{os.environ.get('TIDEPOOL_KUBE_BIN', '')}'), in {_cache()} or on "
        "PATH; e2e/cluster/build --fast builds it")


class Bad:
    """A file that must be refused. Its first lines are comments: why, then
    `expect:` with what the refusal says, once or more, and `after:` with what
    is applied before."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text()
        comments = [line[1:].strip() for line in self.text.split("\n")
                    if line.startswith("#")]
        self.expect = [c.removeprefix("expect: ") for c in comments
                       if c.startswith("expect: ")]
        self.after = [c.removeprefix("after: ") for c in comments
                      if c.startswith("after: ")]


class ControlPlane:
    """etcd and an API server on loopback, with a folder of its own; or, to try
    things quicker, those that run in the folder TIDEPOOL_API_SERVER."""

    def __init__(self):
        self._borrowed = os.environ.get("TIDEPOOL_API_SERVER")
        if self._borrowed:
            self._work = self._borrowed
            return
        for name in ("etcd", "kube-apiserver", "kubectl"):
            find(name)
        self._work = tempfile.mkdtemp(prefix="tidepool-")
        try:
            subprocess.run([CLUSTER / "up", "--control-plane-only",
                            self._work], check=True, capture_output=True,
                           text=True, timeout=1200)
        except subprocess.CalledProcessError as error:
            self.stop()
            raise RuntimeError(error.stderr) from error

    def run(self, *command, stdin=None):
        """Runs e.g. `kubectl get pods` as the administrator."""
        return subprocess.run([CLUSTER / "in", self._work, *command],
                              input=stdin, capture_output=True, text=True,
                              timeout=120)

    def stop(self):
        if self._borrowed:
            return
        subprocess.run([CLUSTER / "down", self._work], capture_output=True,
                       timeout=120)
        shutil.rmtree(self._work, ignore_errors=True)
