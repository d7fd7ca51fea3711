"""Reference continuations through the HTTP API, in both compute modes."""

import json
import pathlib
import tempfile
import unittest

from fleet import ROOT, SHARED_MODELS, Fleet

MODES = ("float32", "bfloat16")


class GoldenTest(unittest.TestCase):
    def test_demo(self):
        cases = json.loads(
            (ROOT / "models/demo/golden_greedy.json").read_text())["cases"]
        for dtype in MODES:
            with Fleet("--model", "demo", "--dtype", dtype, "--threads",
                       "1") as fleet:
                for case in cases:
                    with self.subTest(dtype=dtype, prompt=case["prompt_text"]):
                        self.check_demo(fleet, case)

    def check_demo(self, fleet, case):
        fields = {"model": "demo", "temperature": 0, "return_token_ids": True,
                  "max_tokens": 64}
        if isinstance(case["input"], str):
            status, answer = fleet.post(
                "/v1/completions", {**fields, "prompt": case["input"]})
        else:
            status, answer = fleet.post(
                "/v1/chat/completions", {**fields, "messages": case["input"]})
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        prompt_ids = answer.get("prompt_token_ids") or choice.get(
            "prompt_token_ids")
        self.assertEqual(prompt_ids, case["prompt_ids"])
        expected = case["greedy_ids"]
        self.assertEqual(choice["token_ids"], expected[:64])

    @unittest.skipUnless(SHARED_MODELS.exists(),
                         "NO ../shared/models: stories15M was not tested")
    def test_stories15m(self):
        model = SHARED_MODELS / "stories15M"
        cases = json.loads((model / "golden_greedy.json").read_text())["cases"]
        for dtype in MODES:
            with Fleet("--model", model, "--served-model-name", "stories",
                       "--dtype", dtype, "--threads", "1") as fleet:
                for case in cases:
                    with self.subTest(dtype=dtype, prompt=case["prompt"]):
                        answer = fleet.complete(
                            case["prompt"], len(case["greedy_ids"]),
                            return_token_ids=True, ignore_eos=True)
                        choice = answer["choices"][0]
                        self.assertEqual(choice["token_ids"],
                                         case["greedy_ids"])

    def test_a_folder_without_tokenizer_takes_and_gives_ids(self):
        source = ROOT / "models/demo"
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "generation_config.json",
                         "model.safetensors"):
                (pathlib.Path(folder) / name).symlink_to(source / name)
            case = json.loads(
                (source / "golden_greedy.json").read_text())["cases"][0]
            with Fleet("--model", folder, "--served-model-name", "bare",
                       "--dtype", "float32", "--threads", "1") as fleet:
                answer = fleet.complete(case["prompt_ids"], 64)
                choice = answer["choices"][0]
                self.assertEqual(choice["token_ids"], case["greedy_ids"][:64])
                self.assertEqual(choice["text"], "")
                status, answer = fleet.post("/v1/completions", {
                    "model": "bare", "prompt": "text"})
                self.assertEqual(status, 400)
                self.assertIn("tokenizer", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main()
