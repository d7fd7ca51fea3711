#!/usr/bin/env python3
"""Writes what the chat template tests expect, from two other implementations.

    npm install --prefix DIR @huggingface/jinja
    python3 -m venv DIR/venv && DIR/venv/bin/pip install jinja2
    DIR/venv/bin/python scripts/dev/chat_template_expectations.py DIR

testdata/chat_template/conversations.json: every template of the folders beside
it and of models/demo, on every context of the file, by Python's jinja2 as
transformers sets it up and by @huggingface/jinja. Where both agree there is one
result; where not, `javascript` is the other's.

testdata/chat_template/language.json: `expected` (or `error`) of each snippet,
by Python's jinja2, with the context of language_context.json. To add a snippet,
add its `template`.
"""

import json
import pathlib
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "dataplane/model/testdata/chat_template"
TEMPLATES = {
    "demo": ROOT / "models/demo",
    "llama3_2": TESTDATA / "llama3_2",
    "qwen2_5": TESTDATA / "qwen2_5",
    "qwen3": TESTDATA / "qwen3",
}
# 2026-01-02 03:04:05 UTC, which the tests pass in as well.
NOW = 1767323045


class Generation(jinja2.ext.Extension):
    """The `generation` tag, which only marks what it holds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_pass")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None,
               sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def strftime_now(layout):
        import datetime
        now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
        return now.strftime(layout)

    result = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = strftime_now
    return result


ENVIRONMENT = environment()


def render(template, context):
    try:
        return {"expected": ENVIRONMENT.from_string(template).render(context)}
    except Exception as error:  # the kind is Python's own business
        return {"error": f"{error}" or type(error).__name__}


def tokens_of(config):
    result = {}
    for key, value in config.items():
        if key.endswith("_token"):
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                result[key] = value
    return result


def write(path, data):
    """One result a line, so that changes can be read."""
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def conversations(node_folder):
    path = TESTDATA / "conversations.json"
    data = json.loads(path.read_text())
    jobs, keys = [], []
    for name, folder in TEMPLATES.items():
        config = json.loads((folder / "tokenizer_config.json").read_text())
        for label, context in data["contexts"].items():
            jobs.append({"template": config["chat_template"],
                         "context": tokens_of(config) | context})
            keys.append((name, label))
    script = pathlib.Path(__file__).with_name("chat_template_huggingface.mjs")
    output = subprocess.run(["node", script, node_folder, str(NOW)],
                            input=json.dumps(jobs), text=True, check=True,
                            capture_output=True).stdout
    data["results"] = {name: {} for name in TEMPLATES}
    differing = 0
    for (name, label), job, other in zip(keys, jobs, json.loads(output)):
        result = render(job["template"], job["context"])
        if result.get("expected") != other.get("expected"):
            differing += 1
            result["javascript"] = other.get("expected")
            print(f"differ: {name}, {label}: {result.get('error', '')}"
                  f" | {other.get('error', '')}")
        data["results"][name][label] = result
    write(path, data)
    print(f"{len(jobs)} conversations, {differing} differ")


def language():
    path = TESTDATA / "language.json"
    snippets = json.loads(path.read_text())
    context = json.loads((TESTDATA / "language_context.json").read_text())
    for snippet in snippets:
        snippet.pop("expected", None)
        snippet.pop("error", None)
        snippet |= render(snippet["template"], context)
    path.write_text("[\n" + ",\n".join(
        json.dumps(each, ensure_ascii=False) for each in snippets) + "\n]\n")
    errors = sum("error" in each for each in snippets)
    print(f"{len(snippets)} snippets, {errors} errors")


if __name__ == "__main__":
    language()
    conversations(sys.argv[1])
