"""`tidepool serve` itself: the demo, its options, restarts and its end."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from fleet import BIN, ROOT, Fleet, wait_for


def run(*arguments, timeout=60, **more):
    return subprocess.run([BIN / "tidepool", *map(str, arguments)],
                          capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, **more)


class ServeTest(unittest.TestCase):
    def test_what_make_demo_runs(self):
        demo = subprocess.run([ROOT / "scripts/demo", BIN],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(demo.returncode, 0, demo.stdout + demo.stderr)
        self.assertIn("Once upon a time", demo.stdout)
        self.assertIn("the fleet has ended", demo.stdout)
        self.assertRegex(demo.stderr, r"TTFT \d.*TBT \d.*prefill on .*decode")

    def test_options_from_a_file_and_a_graceful_end(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "serve.yaml"
            path.write_text("model: demo\nprefill: 0\ndecode: 1\nthreads: 1\n"
                            "served-model-name: [crab, demo]\n")
            with Fleet("--config", path) as fleet:
                self.assertEqual(len(fleet.children()), 2)
                self.assertEqual(fleet.model(), "crab")
                answer = fleet.complete("Once", 3)
                self.assertEqual(answer["model"], "crab")
                children = fleet.children()
                self.assertEqual(fleet.stop(), 0, fleet.log)
                for child in children:
                    self.assertFalse(pathlib.Path(f"/proc/{child}").exists())

    def test_streams_finish_before_it_ends(self):
        with Fleet("--model", "demo", "--threads", "1") as fleet:
            client = subprocess.Popen(
                [BIN / "tidepool", "complete", "--url", fleet.url,
                 "--max-tokens", "400", "--temperature", "0", "--stats",
                 "Once upon a time"], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True)
            wait_for(lambda: fleet.metric("vllm:num_requests_running") > 0,
                     what="a running request")
            self.assertEqual(fleet.stop(), 0, fleet.log)
            out, err = client.communicate(timeout=60)
            self.assertEqual(client.returncode, 0, err)
            self.assertRegex(err, r" [1-9]\d* generated")
            self.assertGreater(len(out), 100)  # the prompt is 16 of them

    def test_bad_options_are_named(self):
        for arguments, words in [
                (["serve", "--prot", "1"], "--prot"),
                (["serve", "--port", "99999"], "--port"),
                (["serve", "--dtype", "int4"], "--dtype"),
                (["serve", "--page-size", "48"], "--page-size"),
                (["serve", "--config", "/no/such/file"], "/no/such/file"),
                (["serve", "--model", "/no/such/model"], "/no/such/model"),
                (["serve", "--model", "hf:../x"], "hf:"),
                (["serve", "--host", "0.0.0.0"], "no-auth"),
                (["serve", "--max-model-len", "99999999999"],
                 "--max-model-len"),
                (["serve", "--model", "demo", "--max-model-len", "1000000"],
                 "max-model-len"),
                (["complete", "--url", "http://127.0.0.1:1", "x"],
                 "127.0.0.1:1"),
                (["complete", "--api-key-file", "/no/such/keys", "x"],
                 "/no/such/keys"),
                (["nonsense"], "nonsense"),
        ]:
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(words, result.stdout + result.stderr)

    def test_what_it_prints_is_a_config_file(self):
        printed = run("serve", "--model", "demo", "--threads", "1",
                      "--prefill", "0", "--print-config")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("max-num-seqs: 256", printed.stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "serve.yaml"
            path.write_text(re.sub(r"^(port|ready-file): .*\n", "",
                                   printed.stdout, flags=re.M))
            with Fleet("--config", path) as fleet:
                self.assertEqual(len(fleet.children()), 2)
                fleet.complete("Once", 1)

    def test_keys_of_a_config_file_stay_out_of_command_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "serve.yaml"
            path.write_text("model: demo\nprefill: 0\nthreads: 1\n"
                            "api-key: [s3cret, '#2: x']\n")
            with Fleet("--config", path) as fleet:
                self.assertEqual(fleet.children("s3cret"), [])
                for key, status in [("s3cret", 200), ("#2: x", 200),
                                    ("other", 401)]:
                    self.assertEqual(fleet.post(
                        "/tokenize", {"prompt": "a"},
                        {"Authorization": f"Bearer {key}"})[0], status)
                keys = pathlib.Path(folder) / "keys"
                keys.write_text("# ours\n\n s3cret \nother\n")
                told = run("complete", "--url", fleet.url, "--api-key-file",
                           keys, "--max-tokens", "2", "Once")
                self.assertEqual(told.returncode, 0, told.stderr)

    @unittest.skipUnless(socket.has_ipv6 and
                         pathlib.Path("/proc/net/if_inet6").exists() and
                         pathlib.Path("/proc/net/if_inet6").read_text(),
                         "NO IPv6: serve --host ::1 was not tested")
    def test_an_ipv6_host(self):
        with Fleet("--model", "demo", "--prefill", "0", "--threads", "1",
                   "--host", "::1") as fleet:
            self.assertRegex(fleet.url, r"^http://\[::1\]:\d+$")
            fleet.complete("Once", 1)

    def test_unknown_yaml_keys_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "serve.yaml"
            path.write_text("model: demo\nprefil: 2\n")
            result = run("serve", "--config", path)
            self.assertEqual(result.returncode, 2)
            self.assertIn("serve.yaml:2: prefil", result.stderr)

    def test_a_port_in_use_is_said(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            result = run("serve", "--model", "demo", "--prefill", "0",
                         "--port", port)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("in use", result.stdout + result.stderr)
            self.assertIn(str(port), result.stdout + result.stderr)

    def test_a_killed_prefill_worker_is_retried_elsewhere_and_restarted(self):
        with Fleet("--model", "demo", "--prefill", "2", "--threads",
                   "1") as fleet:
            expected = fleet.complete("Once upon a time", 20)["choices"][0]
            victim = fleet.children("--role prefill")[0]
            os.kill(victim, signal.SIGKILL)
            for _ in range(4):
                got = fleet.complete("Once upon a time", 20)["choices"][0]
                self.assertEqual(got["text"], expected["text"])
            wait_for(lambda: len(fleet.children("--role prefill")) == 2,
                     what="the restart")

    def test_a_killed_conductor_comes_back_and_workers_drop_its_requests(self):
        with Fleet("--model", "demo", "--threads", "1") as fleet:
            before = fleet.complete("Once", 5)["choices"][0]["text"]
            victim = fleet.children("tidepool-conductor")[0]
            os.kill(victim, signal.SIGKILL)

            def serves():
                try:
                    return fleet.complete("Once", 5)["choices"][0][
                        "text"] == before
                except (OSError, AssertionError):
                    return False
            wait_for(serves, timeout=30, what="the new conductor")

    def test_a_killed_serve_takes_its_children_along(self):
        fleet = Fleet("--model", "demo", "--threads", "1")
        children = fleet.children()
        self.assertEqual(len(children), 3)
        fleet.process.kill()
        fleet.process.wait()
        wait_for(lambda: not any(
            pathlib.Path(f"/proc/{child}").exists() for child in children),
            what="the end of the children")


if __name__ == "__main__":
    unittest.main()
