"""`tidepool-controller` as a process of this machine, with the rights that the
chart gives it."""

import pathlib
import re
import signal
import subprocess
import urllib.request

from .context import CHART, SYSTEM
from .served import mortal
from .waiting import eventually

ACCOUNT = "tidepool-controller"


def install_rights(context):
    """Custom resources and rights by the chart; its own pods only pretend."""
    context.cluster.helm(
        "upgrade", "--install", "tidepool", CHART, "--namespace", SYSTEM,
        "--create-namespace", *context.chart_values("localhost/tidepool:0"))


def write_kubeconfig(cluster, path):
    """The administrator's, with the account's token in place of the key."""
    token = cluster.kubectl("-n", SYSTEM, "create", "token", ACCOUNT,
                            "--duration=4h").strip()
    admin = cluster.kubeconfig.read_text()
    path.write_text(re.sub(r"user: \{client-certificate.*\}",
                           f"user: {{token: {token}}}", admin))


class ControllerProcess:
    """From `with` to its end; stopped ones may be started again."""

    def __init__(self, context, name, *flags):
        folder = context.folder()
        self._kubeconfig = folder / f"{name}.conf"
        self.log = folder / f"{name}.log"
        self._command = [
            context.programs / "tidepool-controller",
            f"--kubeconfig={self._kubeconfig}", "--metrics-host=127.0.0.1",
            "--metrics-port=0", f"--lease-namespace={SYSTEM}", *flags]
        write_kubeconfig(context.cluster, self._kubeconfig)
        self.log.unlink(missing_ok=True)
        self._process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the controller did not end: {self.log}")

    @property
    def pid(self):
        return self._process.pid

    def start(self):
        with open(self.log, "ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                mortal(self._command), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL)
        return self

    def signal(self, number):
        if self._process.poll() is None:
            self._process.send_signal(number)

    def expect_synced(self):
        """Waits until it knows the cluster: leading, or ready to lead."""
        def synced():
            self.expect_running()
            port = re.findall(r"probes on port (\d+)", self._new_log())[-1]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz",
                                        timeout=2) as answer:
                return answer.status == 200
        eventually("the controller to know the cluster", synced, 30)
        return self

    def _new_log(self):
        """What it printed since it was started last."""
        return self.log.read_bytes()[self._log_begin:].decode()

    def wait(self):
        return self._process.wait(20)

    def kill(self):
        self.signal(signal.SIGKILL)
        self._process.wait(5)

    def expect_running(self):
        if self._process.poll() is not None:
            raise AssertionError(
                f"the controller ended with {self._process.returncode}; see "
                f"{self.log}:\n{self.log.read_text()[-2000:]}")

    def resident_bytes(self):
        return self._kibibytes("VmRSS") << 10

    def memory(self):
        """What it weighs: now, at most so far, and what of it is its own."""
        return "{} MiB resident, {} at most, {} its own".format(*(
            round(self._kibibytes(name) / 1024, 1)
            for name in ("VmRSS", "VmHWM", "RssAnon")))

    def _kibibytes(self, name):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", status).group(1))
