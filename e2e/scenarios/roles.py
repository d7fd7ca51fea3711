"""A load shifts from long prompts to long answers: workers change their role in
place, with the same pods, and no stream fails. Re-applying the manifests
meanwhile moves nothing."""

import random

from framework import emulated
from framework.waiting import eventually

CLIENTS = 24
WORKERS = 6


def long_prompts(number):
    draw = random.Random(number)
    return {"model": "demo", "max_tokens": 4, "temperature": 0,
            "prompt": [draw.randrange(4000) for _ in range(1500)]}


def long_answers(number):
    draw = random.Random(number)
    return {"model": "demo", "max_tokens": 80, "temperature": 0,
            "prompt": [draw.randrange(4000) for _ in range(8)]}


def roles(fleet):
    """{prefill, decode}: how many pods say they are."""
    found = [pod["metadata"]["labels"]["tidepool.dev/role"]
             for pod in fleet.pods(component="worker")]
    return {role: found.count(role) for role in ("prefill", "decode")}


def shifts_towards(fleet, role, body_of):
    before = roles(fleet)
    with fleet.load(CLIENTS, body_of) as load:
        eventually(f"a worker to become a {role} worker",
                   lambda: roles(fleet)[role] > before[role], 90)
        fleet.apply()  # as GitOps tools do, all the time
        target = len(load.streams) + CLIENTS
        eventually("streams to go on",
                   lambda: len(load.streams) >= target, 60)
    load.expect_no_failures(at_least=CLIENTS)
    return len(load.streams)


def run(context):
    context.ensure_chart()
    fleet = emulated.fleet(
        context, prefill=3, decode=3,
        prefill_seconds_per_token=2e-4, decode_base_seconds=0.02,
        decode_seconds_per_sequence=0.03,  # 8 at once miss the SLO
        spec={"slo": {"ttftMilliseconds": 500, "tbtMilliseconds": 250},
              "rebalancing": {"policy": "Reactive",
                              "acceleratorBudget": WORKERS,
                              "stabilizationSeconds": 3}}).wait_ready()
    pods = fleet.uids(component="worker")
    streams = shifts_towards(fleet, "prefill", long_prompts)
    streams += shifts_towards(fleet, "decode", long_answers)
    assert fleet.uids(component="worker") == pods, \
        "pods were replaced or restarted"
    moves = fleet.resource()["status"]["rebalances"]
    assert len(moves) >= 2 and all(move["reason"] for move in moves), moves
    assert "WishChanged" not in {move["reason"] for move in moves}, \
        f"re-applying began the plan anew: {moves}"
    specs = {role: fleet.pool(role)["spec"]["replicas"]
             for role in ("prefill", "decode")}
    assert specs == {"prefill": 3, "decode": 3}, \
        f"the controller wrote spec.replicas: {specs}"
    reasons = ", ".join(move["reason"] for move in moves)
    return f"{streams} streams, none failed; moves: {reasons}"
