"""Bad manifests are refused by the API server with a message that names the
field; good ones, and every sample, are taken."""

import re

from framework.cluster import GROUP_OF, ROOT

CRDS = ROOT / "crds"
SPACE = "e2e-schema"
BAD_MIN = 40


def field(text, name):
    found = re.search(rf"^\s*#? ?{name}: (.+)$", text, re.M)
    return found and found.group(1).strip()


def resource_path(text):
    resource = field(text, "kind").lower() + "s"
    return f"/{GROUP_OF[resource]}/namespaces/{SPACE}/{resource}"


def create(cluster, text, **params):
    return cluster.send("POST", resource_path(text), text, "application/yaml",
                        fieldValidation="Strict", **params)


def change(cluster, text):
    name = re.search(r"metadata:\s*\{?\s*name: *([^\s,}]+)", text).group(1)
    return cluster.send(
        "PATCH", f"{resource_path(text)}/{name}", text,
        "application/apply-patch+yaml", fieldValidation="Strict",
        fieldManager="e2e", force="true", dryRun="All")


def check_bad(cluster, path, problems):
    text = path.read_text()
    after = field(text, "after")
    if after:
        answer = create(cluster, (CRDS / "testdata" / after).read_text())
        if answer.status_code not in (201, 409):  # 409: there already
            problems.append(f"{after}: {answer.text}")
    answer = change(cluster, text) if after else \
        create(cluster, text, dryRun="All")
    expected = field(text, "expect")
    if answer.status_code < 300:
        problems.append(f"{path.name}: taken, expected: {expected}")
    elif expected not in answer.json()["message"]:
        problems.append(f"{path.name}: the message is\n      "
                        f"{answer.json()['message']}\n    without\n      "
                        f"{expected}")


def run(context):
    cluster = context.cluster
    cluster.kubectl("apply", "--server-side", "-f", CRDS / "v1alpha1")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s",
                    "crd/kvcachepools.tidepool.dev",
                    "crd/prefillpools.tidepool.dev",
                    "crd/decodepools.tidepool.dev")
    cluster.make_namespace(SPACE)
    problems = []
    good = [*sorted((CRDS / "testdata/good").glob("*.yaml")),
            *sorted((CRDS / "v1alpha1/samples").glob("*.yaml"))]
    for path in good:
        try:
            cluster.kubectl("-n", SPACE, "apply", "--dry-run=server",
                            "--validate=strict", "-f", path)
        except AssertionError as error:
            problems.append(f"{path.name}: refused: {error}")
    bad = sorted((CRDS / "testdata/bad").glob("*.yaml"))
    for path in bad:
        check_bad(cluster, path, problems)
    if problems:
        raise AssertionError("\n".join(problems))
    assert len(bad) >= BAD_MIN, f"only {len(bad)} bad manifests"
    return f"{len(bad)} bad manifests refused, {len(good)} good taken"
