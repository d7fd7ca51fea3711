"""A new user: the three commands of docs/quickstart-kubernetes.md, then the
official OpenAI client; the tokens are those that one process gives."""

import subprocess
import time

import openai

from framework.context import CHART, SYSTEM

FIRST_TOKEN_SECONDS_MAX = 90
ASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 60,
       "temperature": 0}


def complete(fleet):
    """`tidepool complete` in a conductor's pod: (its text, when its first
    piece came)."""
    command = [
        "kubectl", "-n", fleet.namespace, "exec", "deployment/demo-conductor",
        "--", "tidepool", "complete", "--temperature", "0", "--max-tokens",
        str(ASK["max_tokens"]), ASK["prompt"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT,
                          env=fleet.cluster.environment) as process:
        text = process.stdout.read(len(ASK["prompt"]) + 1)
        first = time.monotonic()
        text += process.stdout.read()
    assert process.returncode == 0, text
    return text.removeprefix(ASK["prompt"]).removesuffix("\n"), first


def openai_text(fleet):
    with openai.OpenAI(base_url=fleet.url + "/v1", api_key=fleet.api_key,
                       max_retries=0) as client:
        pieces = [choice.text
                  for chunk in client.completions.create(**ASK, stream=True)
                  for choice in chunk.choices]
    assert len(pieces) > 10, f"{len(pieces)} pieces are hardly a stream"
    return "".join(pieces)


def expect_authentication(fleet):
    with openai.OpenAI(base_url=fleet.url + "/v1", api_key="wrong",
                       max_retries=0) as stranger:
        try:
            stranger.models.list()
        except openai.AuthenticationError:
            return
    raise AssertionError("a wrong API key was let in")


def run(context):
    cluster = context.cluster
    fleet = context.fleet(namespace=SYSTEM, apply=False)
    expected = context.oracle.text(ASK)

    begin = time.monotonic()
    cluster.helm("install", "tidepool", CHART, "--namespace", SYSTEM,
                 "--create-namespace", "--wait", "--timeout", "90s",
                 "--set", "samples.enabled=true", *context.chart_values())
    installed = time.monotonic() - begin
    fleet.kubectl("wait", "--for=condition=Ready", "kvp/demo",
                  "--timeout=90s", timeout=100)
    ready = time.monotonic() - begin
    text, first = complete(fleet)
    first -= begin
    assert text == expected, f"other text: {text!r}, expected {expected!r}"
    fleet.wait_ready()

    assert openai_text(fleet) == expected
    expect_authentication(fleet)
    cluster.helm("test", "tidepool", "--namespace", SYSTEM)
    fleet.delete()
    assert first <= FIRST_TOKEN_SECONDS_MAX, \
        f"the first token came {first:.0f} s after helm install"
    return (f"installed in {installed:.1f} s, Ready after {ready:.1f} s, first "
            f"token after {first:.1f} s")
