"""Bad requests each get the documented error, and the process lives."""

import json
import socket
import unittest
import urllib.parse

from fleet import Fleet

BASE = {"model": "demo", "prompt": "a", "max_tokens": 2}

# (what, body of /v1/completions, status, words of the message or param)
BAD_COMPLETIONS = [
    ("truncated JSON", b'{"model": "demo", "prompt": "a', 400, "JSON"),
    ("not an object", b"[1]", 400, "object"),
    ("empty body", b"", 400, "JSON"),
    ("depth 100,000", b'{"model":"demo","prompt":' + b"[" * 100000 +
     b"]" * 100000 + b"}", 400, "dee"),
    ("invalid UTF-8", b'{"model":"demo","prompt":"\xff\xfe"}', 400, ""),
    ("bad escape", b'{"model":"demo","prompt":"\\uD800 x"}', 400, ""),
    ("wrong type of prompt", {**BASE, "prompt": 7}, 400, "prompt"),
    ("mixed prompt", {**BASE, "prompt": [1, "a"]}, 400, "prompt"),
    ("no prompt", {"model": "demo"}, 400, "prompt"),
    ("empty list", {**BASE, "prompt": []}, 400, "prompt"),
    ("no model there", {**BASE, "model": "gpt-x"}, 404, "gpt-x"),
    ("model of wrong type", {**BASE, "model": 3}, 400, "model"),
    ("negative max_tokens", {**BASE, "max_tokens": -1}, 400, "max_tokens"),
    ("huge max_tokens", {**BASE, "max_tokens": 10**18}, 400, "max_tokens"),
    ("beyond 64 bits", b'{"model":"demo","prompt":"a","max_tokens":'
     b"123456789012345678901234567890}", 400, "number"),
    ("max_tokens a string", {**BASE, "max_tokens": "5"}, 400, "max_tokens"),
    ("temperature too high", {**BASE, "temperature": 3}, 400, "temperature"),
    ("temperature negative", {**BASE, "temperature": -1}, 400, "temperature"),
    ("NaN", b'{"model":"demo","prompt":"a","temperature":NaN}', 400, ""),
    ("infinite", b'{"model":"demo","prompt":"a","temperature":1e999}', 400,
     ""),
    ("top_p 0", {**BASE, "top_p": 0}, 400, "top_p"),
    ("top_k negative", {**BASE, "top_k": -5}, 400, "top_k"),
    ("min_p", {**BASE, "min_p": 2}, 400, "min_p"),
    ("n 0", {**BASE, "n": 0}, 400, "n"),
    ("n huge", {**BASE, "n": 10**6}, 400, "n"),
    ("logprobs", {**BASE, "logprobs": 10**6}, 400, "logprobs"),
    ("penalty", {**BASE, "presence_penalty": 5}, 400, "presence_penalty"),
    ("logit_bias key", {**BASE, "logit_bias": {"x": 1}}, 400, "logit_bias"),
    ("logit_bias id", {**BASE, "logit_bias": {"999999": 1}}, 400,
     "logit_bias"),
    ("stop type", {**BASE, "stop": [1]}, 400, "stop"),
    ("seed type", {**BASE, "seed": "x"}, 400, "seed"),
    ("stream type", {**BASE, "stream": "yes"}, 400, "stream"),
    ("suffix", {**BASE, "suffix": "b"}, 400, "suffix"),
    ("id out of vocabulary", {**BASE, "prompt": [5, 99999]}, 400, "99999"),
    ("negative id", {**BASE, "prompt": [-3]}, 400, "-3"),
    ("over the context", {**BASE, "prompt": [5] * 3000}, 400, "context"),
    ("stop_token_ids", {**BASE, "stop_token_ids": [10**9]}, 400,
     "stop_token_ids"),
    ("min over max", {**BASE, "min_tokens": 9}, 400, "min_tokens"),
]

BAD_CHATS = [
    ("no messages", {"model": "demo"}, 400, "messages"),
    ("empty messages", {"model": "demo", "messages": []}, 400, "messages"),
    ("messages of wrong type", {"model": "demo", "messages": "hi"}, 400,
     "messages"),
    ("no role", {"model": "demo", "messages": [{"content": "a"}]}, 400,
     "role"),
    ("a role the template refuses",
     {"model": "demo", "messages": [{"role": "wizard", "content": "a"}]}, 400,
     "wizard"),
    ("response_format", {"model": "demo", "messages": [
        {"role": "user", "content": "a"}],
        "response_format": {"type": "json_object"}}, 400, "response_format"),
    ("an image", {"model": "demo", "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "x"}}]}]}, 400, "messages[0].content[0].type"),
]


class BadInputsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet("--model", "demo", "--prefill", "0", "--threads",
                          "1")
        cls.address = urllib.parse.urlsplit(cls.fleet.url)

    @classmethod
    def tearDownClass(cls):
        assert cls.fleet.stop() == 0

    def tearDown(self):
        self.assertEqual(self.fleet.get("/health")[0], 200)
        self.fleet.complete("Once", max_tokens=1)

    def check(self, path, table):
        for what, body, status, words in table:
            with self.subTest(what):
                got, answer = self.fleet.post(path, body)
                self.assertEqual(got, status, answer)
                error = answer["error"]
                self.assertTrue({"message", "type", "param", "code"} <=
                                set(error), error)
                self.assertIn(words.lower(),
                              f"{error['message']} {error['param']}".lower())

    def test_completions(self):
        self.check("/v1/completions", BAD_COMPLETIONS)

    def test_chats(self):
        self.check("/v1/chat/completions", BAD_CHATS)

    def test_paths_and_methods(self):
        self.assertEqual(self.fleet.get("/nowhere")[0], 404)
        self.assertEqual(self.fleet.get("/v1/completions")[0], 405)
        self.assertEqual(self.fleet.post("/v1/models", {})[0], 405)

    def exchange(self, data, timeout=30):
        """What the server answers to raw bytes, until it closes."""
        with socket.create_connection(
                (self.address.hostname, self.address.port),
                timeout=timeout) as peer:
            peer.sendall(data)
            answer = b""
            while chunk := peer.recv(65536):
                answer += chunk
                if len(answer) > 1 << 20:
                    break
            return answer

    def test_raw_http(self):
        host = b"Host: a\r\n"
        self.assertIn(b" 400 ", self.exchange(b"nonsense\r\n\r\n"))
        self.assertIn(b" 431 ", self.exchange(
            b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * 100000 +
            b"\r\n\r\n"))
        self.assertIn(b" 413 ", self.exchange(
            b"POST /v1/completions HTTP/1.1\r\n" + host +
            b"Content-Length: 99999999999\r\n\r\n"))
        self.assertIn(b" 400 ", self.exchange(
            b"POST /v1/completions HTTP/1.1\r\n" + host +
            b"Content-Length: -5\r\n\r\n"))

    def test_an_oversized_body_is_refused(self):
        body = json.dumps({**BASE, "prompt": "a" * (40 << 20)}).encode()
        try:
            status, answer = self.fleet.post("/v1/completions", body)
            self.assertEqual(status, 413, answer)
        except OSError:
            pass  # it closed while the body was being sent: refused as well


if __name__ == "__main__":
    unittest.main()
