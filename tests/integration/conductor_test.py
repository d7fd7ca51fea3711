"""A conductor by itself: workers that it finds by name, its slow end, and what
it refuses when its queue is full."""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from fleet import BIN, wait_for


def get(address, path):
    """(status, body), or (0, "") if nobody listens."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}",
                                    timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""


class Program:
    """A program that says where it listens in a ready file."""

    def __init__(self, name, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="tidepool-test-")
        ready = pathlib.Path(self.folder.name) / "ready"
        self.log_path = pathlib.Path(self.folder.name) / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [BIN / name, "--model", "demo", "--ready-file", ready,
                 *map(str, flags)], stdout=log, stderr=subprocess.STDOUT)
        wait_for(lambda: ready.exists() or self.process.poll() is not None,
                 60, "the start of " + name)
        self.ready = json.loads(ready.read_text())
        self.address = self.ready["address"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def get(self, path):
        return get(self.address, path)

    def complete(self, max_tokens=4):
        """(status, headers) of a completion."""
        request = urllib.request.Request(
            f"http://{self.address}/v1/completions",
            json.dumps({"model": "demo", "prompt": "Once", "ignore_eos": True,
                        "max_tokens": max_tokens}).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                return answer.status, answer.headers
        except urllib.error.HTTPError as error:
            error.read()
            return error.code, error.headers


def worker(*flags):
    return Program("tidepool-worker", "--threads", 1, *flags)


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def names_of_ready(conductor):
    workers = json.loads(conductor.get("/ready")[1])["workers"]
    return sorted(w["name"] for w in workers if w["ready"])


class ConductorTest(unittest.TestCase):
    def test_workers_are_found_by_name_and_say_their_own(self):
        with worker("--name", "pool-0") as first:
            port = first.address.rsplit(":", 1)[1]
            with Program("tidepool-conductor", "--port", 0, "--discover",
                         f"localhost:{port}") as conductor:
                wait_for(lambda: names_of_ready(conductor) == ["pool-0"])
                self.assertEqual(conductor.complete()[0], 200)
                # Another process takes the address over.
                first.process.send_signal(signal.SIGTERM)
                self.assertEqual(first.process.wait(30), 0)
                wait_for(lambda: names_of_ready(conductor) == [])
                with worker("--name", "pool-1", "--port", port):
                    wait_for(lambda: names_of_ready(conductor) == ["pool-1"])
                    self.assertEqual(conductor.complete()[0], 200)

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_a_fleet_speaks_ipv6(self):
        pod = ["--host", "::", "--advertise-host", "::1", "--transport", "tcp",
               "--metrics-port", 0]
        with worker("--name", "p", "--role", "prefill", *pod) as prefill, \
                worker("--name", "d", "--role", "decode", *pod) as decode, \
                Program("tidepool-conductor", "--host", "::", "--no-auth",
                        "--port", 0, "--control-port", 0,
                        "--worker", prefill.address, "--worker",
                        decode.address) as conductor:
            self.assertRegex(decode.ready["transfer_address"], r"^\[::1\]:\d+$")
            for host in "[::1]", "127.0.0.1":
                port = conductor.ready["address"].rsplit(":", 1)[1]
                conductor.address = f"{host}:{port}"
                wait_for(lambda: len(names_of_ready(conductor)) == 2)
                self.assertEqual(conductor.complete()[0], 200)
                decode.address = f"{host}:{decode.ready['metrics_port']}"
                self.assertEqual(decode.get("/ready")[0], 200)
            # What was prefilled there came here.
            self.assertRegex(decode.get("/metrics")[1],
                             r'bytes_total\{direction="received",'
                             r'transport="tcp"\} [1-9]')

    def test_it_lives_and_ends_at_a_signal_while_it_waits_for_its_model(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as hub:
            hub.settimeout(30)
            endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
            process = subprocess.Popen(
                [BIN / "tidepool-conductor", "--model", "hf:some/model",
                 "--worker", "127.0.0.1:1", "--port", str(port)],
                stderr=subprocess.DEVNULL,
                env={**os.environ, "HF_ENDPOINT": endpoint})
            try:
                with hub.accept()[0]:  # which never answers
                    self.assertEqual(get(f"127.0.0.1:{port}", "/health")[0], 200)
                    status, body = get(f"127.0.0.1:{port}", "/ready")
                    self.assertEqual(status, 503)
                    self.assertIn("the model is loading", body)
                    self.assertEqual(get(f"127.0.0.1:{port}", "/v1/models")[0], 503)
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(process.wait(20), 0)
            finally:
                process.kill()
                process.wait()

    def test_it_serves_on_while_others_learn_that_it_goes(self):
        with worker() as one, Program(
                "tidepool-conductor", "--port", 0, "--control-port", 0,
                "--worker", one.address, "--drain-delay", 3) as conductor:
            self.assertIn("control_address", conductor.ready)
            wait_for(lambda: conductor.get("/ready")[0] == 200)
            start = time.monotonic()
            conductor.process.send_signal(signal.SIGTERM)
            wait_for(lambda: conductor.get("/ready")[0] == 503)
            self.assertEqual(conductor.complete()[0], 200)
            self.assertEqual(conductor.process.wait(30), 0)
            self.assertGreaterEqual(time.monotonic() - start, 3)

    def test_a_full_queue_is_said_with_a_time_to_come_back(self):
        with worker("--max-num-seqs", 1, "--max-model-len", 1024) as one, \
                Program("tidepool-conductor", "--port", 0, "--worker",
                        one.address, "--max-waiting-requests", 1) as conductor:
            wait_for(lambda: conductor.get("/ready")[0] == 200)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: conductor.complete(900),
                                        range(8)))
            statuses = {status for status, _ in answers}
            self.assertEqual(statuses, {200, 429})
            for status, headers in answers:
                if status == 429:
                    self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            text = conductor.get("/metrics")[1]
            self.assertIn('tidepool_conductor_saturation_ratio{role="decode"}',
                          text)


if __name__ == "__main__":
    unittest.main()
