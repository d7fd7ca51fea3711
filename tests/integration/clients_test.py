"""The official OpenAI clients against real processes: Python here, Node in
clients_node.mjs."""

import os
import pathlib
import shutil
import subprocess
import unittest

import openai

from fleet import ROOT, Fleet, wait_for


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet("--model", "demo", "--api-key", "k3y", "--threads",
                          "1")
        cls.client = openai.OpenAI(base_url=cls.fleet.url + "/v1",
                                   api_key="k3y", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.fleet.stop() == 0

    def test_completion_streamed_equals_whole(self):
        ask = dict(model="demo", prompt="Once upon a time", max_tokens=40,
                   temperature=0)
        whole = self.client.completions.create(**ask)
        self.assertIn(whole.choices[0].finish_reason, ("length", "stop"))
        self.assertEqual(whole.usage.completion_tokens, 40)
        pieces, usage = [], None
        for chunk in self.client.completions.create(
                **ask, stream=True, stream_options={"include_usage": True}):
            pieces += [choice.text for choice in chunk.choices]
            usage = chunk.usage or usage
        self.assertEqual("".join(pieces), whole.choices[0].text)
        self.assertEqual(usage.completion_tokens, 40)
        self.assertGreater(len(pieces), 10)

    def test_chat_streamed_equals_whole(self):
        ask = dict(model="demo", max_tokens=60, temperature=0.8, seed=5,
                   messages=[{"role": "user",
                              "content": "Tell me a story about a dragon."}])
        whole = self.client.chat.completions.create(**ask)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        text = ""
        for chunk in self.client.chat.completions.create(**ask, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertTrue(text.strip())

    def test_n_choices_logprobs_and_stop(self):
        answer = self.client.completions.create(
            model="demo", prompt="The dog", n=3, max_tokens=8, logprobs=2,
            temperature=1, seed=11)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertGreater(len({c.text for c in answer.choices}), 1)
        logprobs = answer.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        self.assertEqual(len(logprobs.token_logprobs), 8)
        self.assertTrue(all(len(t) in (2, 3) for t in logprobs.top_logprobs))
        stopped = self.client.completions.create(
            model="demo", prompt="Once upon a time", temperature=0,
            max_tokens=60, stop=["."])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertNotIn(".", stopped.choices[0].text)

    def test_chat_logprobs(self):
        answer = self.client.chat.completions.create(
            model="demo", max_tokens=5, temperature=0, logprobs=True,
            top_logprobs=3, messages=[{"role": "user", "content": "Hello"}])
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 5)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertAlmostEqual(token.logprob,
                                   token.top_logprobs[0].logprob, places=5)

    def test_cached_tokens_are_reported(self):
        ask = dict(model="demo", prompt=list(range(100, 400)), max_tokens=2,
                   temperature=0)
        self.client.completions.create(**ask)
        usage = self.client.completions.create(**ask).usage
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, 256)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="gpt-x", prompt="a")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="demo", prompt="a",
                                           temperature=9)
        self.assertEqual(caught.exception.body["param"], "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="demo",
                                           prompt=[5] * 5000)
        self.assertEqual(caught.exception.body["code"],
                         "context_length_exceeded")
        with openai.OpenAI(base_url=self.fleet.url + "/v1", api_key="wrong",
                           max_retries=0) as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()

    def test_a_client_that_leaves_is_cancelled_within_a_second(self):
        stream = self.client.completions.create(
            model="demo", prompt="Once", max_tokens=1900, stream=True,
            temperature=0, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        wait_for(lambda: self.fleet.metric("vllm:num_requests_running") == 0,
                 timeout=2, what="the cancellation")

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["demo"])

    def test_node_client(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("NO NODE: the Node client was not tested")
        clients = pathlib.Path(os.environ.get("TIDEPOOL_CLIENTS",
                                              ROOT / "build/clients"))
        run = subprocess.run(
            [node, ROOT / "tests/integration/clients_node.mjs",
             clients / "node_modules/openai/index.mjs", self.fleet.url],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
