"""The schemas in crds/v1alpha1: what they promise by themselves, and what a
real API server makes of good and bad manifests."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

import yaml

import programs

CRDS = programs.ROOT / "crds/v1alpha1"
TESTDATA = programs.ROOT / "crds/testdata"
KINDS = ["kvcachepools", "prefillpools", "decodepools"]


def load(kind):
    return yaml.safe_load((CRDS / f"{kind}.yaml").read_text())


def schema_of(kind):
    version = load(kind)["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]


def below(schema, path=""):
    """(path, schema) of every part of a schema but metadata."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            yield from below(field, f"{path}.{name}".lstrip("."))
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(inner), dict):
            yield from below(schema[inner], path + mark)


class SchemaTest(unittest.TestCase):

    def every_part(self):
        for kind in KINDS:
            for path, schema in below(schema_of(kind)):
                yield f"{kind}: {path}", path, schema

    def test_every_field_is_described(self):
        for where, path, schema in self.every_part():
            if re.search(r"(\[\]|\{\})$", path) or path in ("", "metadata"):
                continue
            with self.subTest(where):
                self.assertRegex(schema.get("description", ""), r"[.)]$")

    def test_every_value_is_bounded(self):
        for where, path, schema in self.every_part():
            if path in ("apiVersion", "kind"):
                continue
            kind = schema.get("type")
            with self.subTest(where):
                if kind == "string" and "enum" not in schema and \
                        schema.get("format") != "date-time":
                    self.assertIn("maxLength", schema)
                if kind == "integer":
                    self.assertIn("minimum", schema)
                    self.assertIn(schema["format"], ("int32", "int64"))
                    if path.startswith("spec.") and "template" not in path:
                        self.assertIn("maximum", schema)
                if kind == "array":
                    self.assertIn("maxItems", schema)
                    self.assertIn("x-kubernetes-list-type", schema)
                if "additionalProperties" in schema:
                    self.assertIn("maxProperties", schema)
                if schema.get("x-kubernetes-int-or-string"):
                    self.assertIn("maxLength", schema)

    def test_choices_are_words_not_booleans(self):
        for where, path, schema in self.every_part():
            if path.endswith("volumeMounts[].readOnly"):  # as in a pod
                continue
            with self.subTest(where):
                self.assertNotEqual(schema.get("type"), "boolean")
                for value in schema.get("enum", []):
                    self.assertRegex(value, r"^[A-Z][A-Za-z0-9]+$")

    def test_every_rule_names_its_field(self):
        for where, path, schema in self.every_part():
            for rule in schema.get("x-kubernetes-validations", []):
                with self.subTest(where):
                    last = re.split(r"[.\[\]{}]+", path.rstrip("[]{}"))[-1]
                    fields = [last, *schema.get("properties", {})]
                    self.assertTrue(
                        any(field in rule["message"] for field in fields
                            if field), rule["message"])

    def test_what_is_told_twice_is_told_the_same(self):
        specs = {kind: schema_of(kind)["properties"]["spec"]["properties"]
                 for kind in KINDS}
        prefill, decode = specs["prefillpools"], specs["decodepools"]
        for name in prefill.keys() & decode.keys():
            with self.subTest(name):
                self.assertEqual(prefill[name], decode[name])
        self.assertEqual(prefill.keys() - decode.keys(), {"chunkTokens"})
        self.assertEqual(decode.keys() - prefill.keys(),
                         {"maxNumSeqs", "maxModelLen"})
        conductor = specs["kvcachepools"]["conductor"]["properties"]
        self.assertEqual(conductor["template"], prefill["template"])
        resources = dict(prefill["resources"])
        resources["description"] = conductor["resources"]["description"]
        self.assertEqual(conductor["resources"], resources)

        statuses = {kind: schema_of(kind)["properties"]["status"]
                    for kind in KINDS}
        self.assertEqual(statuses["prefillpools"], statuses["decodepools"])
        pool, hub = (statuses[kind]["properties"]["conditions"]["items"]
                     for kind in ("prefillpools", "kvcachepools"))
        self.assertEqual(pool, hub)

    def test_every_reason_has_its_line(self):
        """docs/conditions.md against what the controller's code says."""
        told = "".join(
            path.read_text() for folder in ("controller/reconcilers",
                                            "dataplane/scheduling")
            for path in sorted((programs.ROOT / folder).rglob("*.cc"))
            if not path.name.endswith("_test.cc"))
        kinds = "Ready|Progressing|Degraded|Rebalancing"
        reasons = {
            reason for pattern in (
                rf'"(?:{kinds})",\s+(?:true|false),\s+"(\w+)"',
                r'return \{"([A-Z]\w+)",', r'\? "([A-Z]\w+)" : "[A-Z]',
                r'\? "[A-Z]\w+" : "([A-Z]\w+)"',
                r'\{(?:true|false), "(\w+)"', r'return "([A-Z]\w+)";')
            for reason in re.findall(pattern, told)}
        reasons -= {*kinds.split("|"), "None", "Unknown", "True", "False",
                    "Prefill", "Decode"}
        page = (programs.ROOT / "docs/conditions.md").read_text()
        documented = {word for word in re.findall(r"`([A-Z]\w+)`", page)}
        self.assertGreater(len(reasons), 30)
        self.assertEqual(reasons - documented, set())
        self.assertEqual(
            documented - reasons - {"FlipRole", "ScalePool"}, set())

    def test_what_is_made_from_them_is_current(self):
        script = programs.ROOT / "scripts/dev/from_crds.py"
        done = subprocess.run([sys.executable, script, "--check"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class ApiServerTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = programs.ControlPlane()
        cls.addClassCleanup(cls.cluster.stop)
        for kind in KINDS:
            done = cls.cluster.run("kubectl", "apply", "--server-side", "-f",
                                   str(CRDS / f"{kind}.yaml"))
            assert done.returncode == 0, done.stderr
        done = cls.cluster.run(
            "kubectl", "wait", "--for=condition=Established",
            *(f"crd/{kind}.tidepool.dev" for kind in KINDS))
        assert done.returncode == 0, done.stderr

    def kubectl(self, *arguments, stdin=None):
        done = self.cluster.run("kubectl", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def in_namespace(self, name):
        self.kubectl("create", "namespace", name)
        self.addCleanup(self.kubectl, "delete", "namespace", name,
                        "--wait=false")
        return name

    def test_the_schemas_are_structural(self):
        for kind in KINDS:
            crd = json.loads(self.kubectl("get", f"crd/{kind}.tidepool.dev",
                                          "-o", "json"))
            conditions = {c["type"]: c for c in crd["status"]["conditions"]}
            self.assertNotIn("NonStructuralSchema", conditions)
            self.assertEqual(conditions["NamesAccepted"]["status"], "True")

    def test_good_manifests_are_taken(self):
        files = [*sorted((TESTDATA / "good").glob("*.yaml")),
                 *sorted((CRDS / "samples").glob("*.yaml"))]
        self.assertGreater(len(files), 5)
        for path in files:
            with self.subTest(path.name):
                self.kubectl("create", "--dry-run=server",
                             "--validate=strict", "-f", str(path))

    def test_every_field_is_in_a_good_manifest(self):
        """So that no schema is so wrong that nothing passes it."""
        seen = set()

        def note(value, schema, path):
            seen.add(path)
            for name, field in schema.get("properties", {}).items():
                if isinstance(value, dict) and name in value:
                    note(value[name], field, f"{path}.{name}")
            if isinstance(value, list):
                for item in value:
                    note(item, schema["items"], path + "[]")

        for path in [*(TESTDATA / "good").glob("*.yaml"),
                     *(CRDS / "samples").glob("*.yaml")]:
            for manifest in yaml.safe_load_all(path.read_text()):
                kind = manifest["kind"].lower() + "s"
                if kind not in KINDS:
                    continue
                schema = schema_of(kind)["properties"]["spec"]
                note(manifest["spec"], schema, f"{kind}: spec")
        wanted = {f"{kind}: {path}" for kind in KINDS
                  for path, _ in below(schema_of(kind))
                  if path.startswith("spec.") and "{}" not in path}
        unseen = {path for path in wanted - seen
                  if "pools: spec.template" not in path}  # seen in conductor
        self.assertEqual(unseen, set())

    def test_bad_manifests_are_refused_with_the_field(self):
        cases = [programs.Bad(path)
                 for path in sorted((TESTDATA / "bad").glob("*.yaml"))]
        self.assertGreaterEqual(len(cases), 40)
        space = self.in_namespace("bad")
        for case in cases:
            with self.subTest(case.path.name):
                self.assertTrue(case.expect, "says no `expect:`")
                for before in case.after:
                    self.kubectl("apply", "-n", space, "-f",
                                 str(TESTDATA / before))
                done = self.cluster.run(
                    "kubectl", "apply", "--dry-run=server",
                    "--validate=strict", "-n", space, "-f", str(case.path))
                self.assertNotEqual(done.returncode, 0, "was taken")
                for fragment in case.expect:
                    self.assertIn(fragment, done.stderr)

    def test_defaults_are_filled_in(self):
        space = self.in_namespace("defaults")
        self.kubectl("apply", "-n", space, "-f",
                     str(TESTDATA / "good/minimal.yaml"),
                     "-f", str(TESTDATA / "good/prefill.yaml"))
        hub = json.loads(self.kubectl("get", "-n", space, "kvp/minimal", "-o",
                                      "json"))["spec"]
        self.assertEqual(hub, {
            "model": {"uri": "demo"},
            "image": {"pullPolicy": "IfNotPresent"},
            "engine": {"type": "Cpu", "dtype": "Auto", "blockSize": 64},
            "conductor": {
                "replicas": 1, "drainSeconds": 600,
                "service": {"type": "ClusterIP", "port": 80},
                "auth": {"type": "ApiKey"}},
            "rebalancing": {"stabilizationSeconds": 60},
            "networkPolicy": {"policy": "Enabled"},
            "tls": {"policy": "SelfSigned"}})
        pool = json.loads(self.kubectl("get", "-n", space, "pfp/prefill", "-o",
                                       "json"))["spec"]
        self.assertEqual(pool, {
            "kvCachePoolRef": {"name": "demo"}, "replicas": 1,
            "lending": "Allowed", "chunkTokens": 2048, "drainSeconds": 120,
            "rollout": {"policy": "Progress", "maxUnavailable": 1,
                        "maxSurge": 0}})

    def test_scale_writes_the_wish_and_keeps_to_the_bounds(self):
        space = self.in_namespace("scale")
        self.kubectl("apply", "-n", space, "-f",
                     str(TESTDATA / "good/prefill.yaml"))
        self.kubectl("scale", "-n", space, "pfp/prefill", "--replicas=3")
        self.assertEqual(
            self.kubectl("get", "-n", space, "pfp/prefill", "-o",
                         "jsonpath={.spec.replicas}"), "3")
        self.kubectl("patch", "-n", space, "pfp/prefill", "--type=merge",
                     "-p", '{"spec":{"maxReplicas":4}}')
        done = self.cluster.run("kubectl", "scale", "-n", space, "pfp/prefill",
                                "--replicas=5")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("spec.replicas must not exceed spec.maxReplicas",
                      done.stderr)
        self.kubectl("patch", "-n", space, "pfp/prefill", "--type=merge",
                     "--subresource=status", "-p", json.dumps({"status": {
                         "replicas": 3,
                         "selector": "tidepool.dev/pool=prefill"}}))
        scale = json.loads(self.kubectl(
            "get", "--raw", f"/apis/tidepool.dev/v1alpha1/namespaces/{space}"
            "/prefillpools/prefill/scale"))
        self.assertEqual(scale["status"], {
            "replicas": 3, "selector": "tidepool.dev/pool=prefill"})

    def test_status_is_its_own_subresource(self):
        space = self.in_namespace("status")
        self.kubectl("apply", "-n", space, "-f",
                     str(TESTDATA / "good/minimal.yaml"))
        path = TESTDATA / "status.json"
        self.kubectl("patch", "-n", space, "kvp/minimal", "--type=merge",
                     "--subresource=status", "-p", path.read_text())
        before = json.loads(self.kubectl("get", "-n", space, "kvp/minimal",
                                         "-o", "json"))
        # Everything that was written is in the schema: nothing was pruned.
        self.assertEqual(before["status"],
                         json.loads(path.read_text())["status"])
        self.assertEqual(before["metadata"]["generation"], 1)
        self.kubectl("patch", "-n", space, "kvp/minimal", "--type=merge", "-p",
                     '{"status":{"version":"other"}}')
        self.assertEqual(
            self.kubectl("get", "-n", space, "kvp/minimal", "-o",
                         "jsonpath={.status.version}"), "0.1.0")

    def test_a_glance_says_how_it_goes(self):
        space = self.in_namespace("glance")
        self.kubectl("apply", "-n", space, "-f",
                     str(TESTDATA / "good/minimal.yaml"))
        self.kubectl("patch", "-n", space, "kvp/minimal", "--type=merge",
                     "--subresource=status", "-p",
                     (TESTDATA / "status.json").read_text())
        lines = self.kubectl("get", "-n", space, "kvp").split("\n")
        self.assertEqual(lines[0].split(), [
            "NAME", "READY", "PREFILL", "DECODE", "TTFT", "TBT", "HITS",
            "LAST-MOVE", "AGE"])
        self.assertRegex(
            lines[1], r"^minimal +True +1/1 +2/3 +812/2000 +41/100 +63% +"
            r"demo-prefill-0 to Decode: DecodePressure +\d+s$")
        for short in ("kvp", "pfp", "dcp", "tidepool"):
            self.kubectl("get", "-n", space, short)


if __name__ == "__main__":
    unittest.main(verbosity=2)
