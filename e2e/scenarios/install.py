"""A new user: the three commands of docs/quickstart-kubernetes.md, then the
official OpenAI client; the tokens are those that one process gives."""

import re
import shlex
import subprocess
import time

import openai

from framework.cluster import ROOT
from framework.context import CHART, SYSTEM

PAGE = ROOT / "docs/quickstart-kubernetes.md"
FIRST_TOKEN_SECONDS_MAX = 90
ASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 60,
       "temperature": 0}


def commands_of_the_page():
    """helm install, kubectl wait, kubectl exec: as words."""
    block = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.S).group(1)
    commands = [shlex.split(text.replace("\\\n", " "))
                for text in block.split("\n\n")]
    assert [command[0] for command in commands] == [
        "helm", "kubectl", "kubectl"], commands
    return commands


def first_token(cluster, command):
    """Runs `tidepool complete`; when the first piece of its text came."""
    prompt = command[-1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT,
                          env=cluster.environment) as process:
        text = process.stdout.read(len(prompt) + 1)
        first = time.monotonic()
        text += process.stdout.read()
    assert process.returncode == 0 and text.startswith(prompt) and \
        len(text) > len(prompt) + 1, text
    return first


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

    install, wait, complete = commands_of_the_page()
    begin = time.monotonic()
    # The values that come last win: this cluster's image.
    cluster.helm(*(str(CHART) if word == "helm/tidepool" else word
                   for word in install[1:]), *context.chart_values())
    installed = time.monotonic() - begin
    cluster.kubectl(*wait[1:], timeout=100)
    ready = time.monotonic() - begin
    first = first_token(cluster, complete) - begin
    fleet.wait_ready()

    assert openai_text(fleet) == expected
    expect_authentication(fleet)
    cluster.helm("test", "tidepool", "--namespace", SYSTEM)
    fleet.delete()
    assert first <= FIRST_TOKEN_SECONDS_MAX, \
        f"the first token came {first:.0f} s after helm install"
    return (f"installed in {installed:.1f} s, Ready after {ready:.1f} s, first "
            f"token after {first:.1f} s")
