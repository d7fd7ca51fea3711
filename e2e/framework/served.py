"""A command that serves on a loopback port until it is ended."""

import os
import re
import subprocess
import tempfile

from .waiting import eventually

SECONDS_MAX = 20
SAID_BYTES_MAX = 4096


def mortal(command):
    """The command such that it ends with this process, even a killed one."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


class Served:
    """`url` is where it answers. What it prints goes to a file without a name:
    nobody reads a pipe for as long as it runs, and a full one would stop it."""

    def __init__(self, command, environment):
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            mortal(command), stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=subprocess.STDOUT, env=environment)
        try:
            self.url = eventually(f"{' '.join(command)} to serve", self._served,
                                  SECONDS_MAX, interval=0.05)
        except BaseException:
            self.close()
            raise

    def is_running(self):
        return self._process.poll() is None

    def close(self):
        self._process.kill()
        self._process.wait()
        self._output.close()

    def _served(self):
        said = os.pread(self._output.fileno(), SAID_BYTES_MAX, 0).decode()
        port = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert port, said
        return f"http://127.0.0.1:{port.group(1)}"
