"""A fleet whose processes know each other by their certificates: the same
tokens as without, no strangers, and new certificates under an open stream."""

import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from fleet import BIN, Fleet, run_streams, wait_for

LOOPBACK = ["--host", "127.0.0.1", "--log-format", "text"]


class Authority:
    """Issues certificates as the controller does, with the openssl command."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir()
        self.key = self._key("ca")
        self.certificate = self.folder / "ca.crt"
        self._openssl("req", "-x509", "-key", self.key, "-out",
                      self.certificate, "-days", "2", "-subj", f"/CN={name}",
                      "-addext", "basicConstraints=critical,CA:TRUE",
                      "-addext", "keyUsage=critical,keyCertSign")
        self.issued = 0

    def issue(self, component, pool="demo"):
        """(certificate, key), PEM."""
        self.issued += 1
        stem = f"{component}{self.issued}"
        key = self._key(stem)
        request, extensions, out = (self.folder / f"{stem}.{kind}"
                                    for kind in ("csr", "ext", "crt"))
        extensions.write_text(
            "extendedKeyUsage=serverAuth,clientAuth\n"
            f"subjectAltName=URI:spiffe://tidepool/test/{pool}/{component},"
            f"DNS:{component}\n")
        self._openssl("req", "-new", "-key", key, "-out", request, "-subj",
                      f"/CN={component}")
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate,
                      "-CAkey", self.key, "-CAcreateserial", "-days", "1",
                      "-extfile", extensions, "-out", out)
        return out.read_text(), key.read_text()

    def _key(self, stem):
        path = self.folder / f"{stem}.key"
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt",
                      "ec_paramgen_curve:P-256", "-out", path)
        return path

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True,
                       capture_output=True)


class Identity:
    """The files of one component, which may be replaced."""

    def __init__(self, folder, component, name=""):
        self.folder = pathlib.Path(folder) / (component + name)
        self.folder.mkdir()
        self.component = component

    def write(self, authority, pool="demo"):
        certificate, key = authority.issue(self.component, pool)
        for name, text in (("tls.crt", certificate), ("tls.key", key),
                           ("ca.crt", authority.certificate.read_text())):
            part = self.folder / "part"
            part.write_text(text)
            part.rename(self.folder / name)

    def flags(self):
        return ["--tls-cert", self.folder / "tls.crt", "--tls-key",
                self.folder / "tls.key", "--tls-ca", self.folder / "ca.crt"]


class ManualFleet(Fleet):
    """A prefill worker, a decode worker and a conductor, started by hand."""

    def __init__(self, worker_flags=(), conductor_flags=()):
        self.folder = tempfile.TemporaryDirectory(
            prefix="tidepool-test-", ignore_cleanup_errors=True)
        self.log_path = pathlib.Path(self.folder.name) / "log"
        self.processes = []
        try:
            workers = [
                self.start("worker", f"{role}", "--role", role, "--threads",
                           "1", "--port", "0", *worker_flags)
                for role in ("prefill", "decode")]
            flags = [part for worker in workers
                     for part in ("--worker", worker["address"])]
            conductor = self.start("conductor", "conductor", "--port", "0",
                                   *flags, *conductor_flags)
        except BaseException:
            self.stop()
            raise
        self.url = "http://" + conductor["address"]

    def start(self, program, name, *flags):
        """The ready file of a process."""
        ready = pathlib.Path(self.folder.name) / f"{name}.ready"
        with open(self.log_path, "ab") as log:
            process = subprocess.Popen(
                [BIN / f"tidepool-{program}", "--model", "demo", *LOOPBACK,
                 "--ready-file", ready, *map(str, flags)],
                stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL)
        self.processes.append(process)
        wait_for(lambda: ready.exists() or process.poll() is not None, 60,
                 f"{name} is ready")
        if process.poll() is not None:
            raise RuntimeError(f"{name} did not start:\n{self.log}")
        return json.loads(ready.read_text())

    def is_ready(self):
        return self.get("/ready")[0] == 200

    def stop(self):
        # The conductor first, so that it does not look for its workers.
        stuck = []
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                stuck.append(process.args[0].name)
        if stuck:
            raise AssertionError(f"{stuck} did not end:\n" + self.log)


BODIES = [{"model": "demo", "prompt": list(range(7, 7 + length)),
           "max_tokens": 48, "ignore_eos": True, "temperature": 0.8,
           "seed": length, "logprobs": 2}
          for length in (3, 64, 200, 700)]


class TlsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidepool-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.authority = Authority(self.folder, "ca-first")
        self.worker = Identity(self.folder, "worker")
        self.conductor = Identity(self.folder, "conductor")
        self.worker.write(self.authority)
        self.conductor.write(self.authority)

    def fleet(self):
        fleet = ManualFleet(self.worker.flags(), self.conductor.flags())
        self.addCleanup(fleet.stop)
        return fleet

    def test_the_same_tokens_as_without(self):
        with ManualFleet() as plain:
            wait_for(plain.is_ready, 60, "the plain fleet is ready")
            expected = run_streams(plain, BODIES)
        fleet = self.fleet()
        wait_for(fleet.is_ready, 60, "the fleet is ready")
        self.assertEqual(run_streams(fleet, BODIES), expected)

    def test_new_certificates_under_an_open_stream(self):
        fleet = self.fleet()
        wait_for(fleet.is_ready, 60, "the fleet is ready")
        body = {**BODIES[0], "max_tokens": 400}
        expected = run_streams(fleet, [body])
        replaced = []  # the number of tokens then

        def replace(count):
            # Another authority altogether: whoever connects from now on needs
            # the new files on both sides.
            if count >= 20 and not replaced:
                second = Authority(self.folder, "ca-second")
                self.worker.write(second)
                self.conductor.write(second)
                replaced.append(count)

        self.assertEqual(run_streams(fleet, [body], on_token=replace),
                         expected)
        self.assertTrue(replaced)
        # A conductor that starts now must come with what the files say now.
        stranger = Identity(self.folder, "conductor", "old")
        stranger.write(self.authority)
        flags = []
        for name in ("prefill", "decode"):
            ready = json.loads(
                (pathlib.Path(fleet.folder.name) / f"{name}.ready")
                .read_text())
            flags += ["--worker", ready["address"]]
        fresh = fleet.start("conductor", "fresh", "--port", "0", *flags,
                            *self.conductor.flags())
        fleet.url = "http://" + fresh["address"]
        wait_for(fleet.is_ready, 30, "the conductor with new certificates "
                                     "is ready")
        self.assertEqual(run_streams(fleet, [body]), expected)
        before = len(fleet.log)
        old = fleet.start("conductor", "old", "--port", "0", *flags,
                          *stranger.flags())
        fleet.url = "http://" + old["address"]
        wait_for(lambda: "certificate verify failed" in fleet.log[before:], 30,
                 "the old certificate is refused")
        self.assertFalse(fleet.is_ready())

    def test_a_conductor_of_another_fleet_gets_no_worker(self):
        self.conductor.write(self.authority, pool="other")
        fleet = self.fleet()
        wait_for(lambda: "of another fleet" in fleet.log, 30,
                 "the refusal is logged")
        self.assertFalse(fleet.is_ready())

    def test_files_that_do_not_fit_end_the_start(self):
        def refusal(flags):
            ended = subprocess.run(
                [BIN / "tidepool-worker", "--model", "demo", *LOOPBACK,
                 *map(str, flags)], capture_output=True, text=True,
                timeout=60, stdin=subprocess.DEVNULL)
            self.assertNotEqual(ended.returncode, 0)
            return ended.stderr + ended.stdout

        flags = self.worker.flags()
        self.assertIn("--tls-ca: is needed", refusal(flags[:4]))
        self.assertIn("is for a conductor, and this is a worker",
                      refusal(self.conductor.flags()))
        certificate = self.worker.folder / "tls.crt"
        certificate.write_text(self.authority.issue("worker")[0])
        self.assertIn("does not belong to the certificate", refusal(flags))
        certificate.unlink()
        self.assertIn("--tls-cert: reading ", refusal(flags))


if __name__ == "__main__":
    unittest.main()
