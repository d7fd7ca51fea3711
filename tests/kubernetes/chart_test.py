"""The chart in helm/tidepool: what helm makes of good and bad values, and what
an API server makes of that."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.request

import yaml

import programs

CHART = programs.ROOT / "helm/tidepool"
TESTDATA = programs.ROOT / "helm/testdata"
BIN = pathlib.Path(os.environ.get("TIDEPOOL_BIN",
                                  programs.ROOT / "build/release/bin"))
KUBERNETES = "1.34.0"
PROMETHEUS = ["monitoring.coreos.com/v1/PodMonitor",
              "monitoring.coreos.com/v1/PrometheusRule"]


def pods_of(manifests):
    """(where, pod spec) of everything that runs."""
    for manifest in manifests:
        where = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Pod":
            yield where, manifest["spec"]
        elif "template" in manifest.get("spec", {}):
            yield where, manifest["spec"]["template"]["spec"]


class Strict(yaml.SafeLoader):
    """Takes no key twice in one mapping."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice} twice", node.start_mark)
        return super().construct_mapping(node, deep)


class ChartTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.program = programs.find("helm")

    def helm(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)],
                              capture_output=True, text=True, timeout=120)

    def render(self, *arguments, api=()):
        """The manifests, by kind and name."""
        done = self.helm("template", "tide", CHART, "--namespace", "system",
                         "--kube-version", KUBERNETES, *arguments,
                         *(f"--api-versions={version}" for version in api))
        self.assertEqual(done.returncode, 0, done.stderr)
        manifests = [m for m in yaml.load_all(done.stdout, Strict) if m]
        return {(m["kind"], m["metadata"]["name"]): m for m in manifests}

    def test_lint_finds_nothing(self):
        for values in sorted((TESTDATA / "good").glob("*.yaml")):
            with self.subTest(values.name):
                done = self.helm("lint", "--strict", CHART, "--values", values,
                                 "--kube-version", KUBERNETES)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertNotIn("symbolic link", done.stderr)

    def test_good_values_render(self):
        for values in sorted((TESTDATA / "good").glob("*.yaml")):
            with self.subTest(values.name):
                manifests = self.render("--values", values,
                                        api=PROMETHEUS)
                for pod, spec in pods_of(manifests.values()):
                    self.check_restricted(pod, spec)

    def test_bad_values_are_refused_by_name(self):
        files = sorted((TESTDATA / "bad").glob("*.yaml"))
        self.assertGreater(len(files), 20)
        for path in files:
            with self.subTest(path.name):
                case = programs.Bad(path)
                self.assertTrue(case.expect, "says no `expect:`")
                done = self.helm("template", "tide", CHART, "--values", path,
                                 "--kube-version", KUBERNETES)
                self.assertNotEqual(done.returncode, 0, "was taken")
                self.assertIn("don't meet the specifications of the schema",
                              done.stderr)
                for fragment in case.expect:
                    self.assertIn(fragment, done.stderr)

    def check_restricted(self, where, spec):
        """As the Pod Security Standard `restricted` asks, and more."""
        pod = spec["securityContext"]
        self.assertTrue(pod["runAsNonRoot"], where)
        self.assertGreater(pod["runAsUser"], 0, where)
        self.assertEqual(pod["seccompProfile"], {"type": "RuntimeDefault"})
        for container in spec["containers"]:
            own = container["securityContext"]
            self.assertIs(own["allowPrivilegeEscalation"], False, where)
            self.assertIs(own["readOnlyRootFilesystem"], True, where)
            self.assertEqual(own["capabilities"], {"drop": ["ALL"]}, where)
            self.assertIn("memory", container["resources"]["limits"], where)

    def test_every_value_has_its_place(self):
        manifests = self.render("--values", TESTDATA / "good/everything.yaml",
                                api=PROMETHEUS)
        deployment = manifests["Deployment", "tidepool-controller"]["spec"]
        pod = deployment["template"]["spec"]
        container = pod["containers"][0]
        self.assertEqual(deployment["replicas"], 2)
        self.assertEqual(
            container["image"], "registry.example.com:5000/team/tidepool@"
            "sha256:" + "0123456789abcdef" * 4)
        self.assertEqual(container["imagePullPolicy"], "Always")
        self.assertEqual(container["args"], [
            "--hub-endpoint=https://hub.example.com/mirror",
            "--image-repository=registry.example.com/fleets/tidepool",
            "--log-format=text", "--log-level=debug", "--metrics-port=9090",
            "--reconcile-threads=16", "--watch-namespace=models"])
        self.assertEqual(container["ports"][0]["containerPort"], 9090)
        self.assertEqual(container["resources"]["limits"],
                         {"cpu": "1.5", "memory": "200Mi"})
        for where, spec in pods_of(manifests.values()):
            with self.subTest(where):
                self.assertEqual(spec["imagePullSecrets"],
                                 [{"name": "registry"}])
                self.assertEqual(spec["nodeSelector"],
                                 {"kubernetes.io/arch": "amd64"})
                self.assertEqual(spec["tolerations"][0]["key"], "dedicated")
                self.assertIn("nodeAffinity", spec["affinity"])
                self.assertEqual(spec["priorityClassName"],
                                 "system-cluster-critical")
        metadata = deployment["template"]["metadata"]
        self.assertEqual(metadata["labels"]["team"], "inference")
        self.assertEqual(metadata["annotations"]["example.com/owner"],
                         "inference")
        self.assertIn(("PodDisruptionBudget", "tidepool-controller"),
                      manifests)
        self.assertNotIn("CustomResourceDefinition",
                         {kind for kind, _ in manifests})
        self.assertEqual(
            manifests["KVCachePool", "demo"]["metadata"]["namespace"],
            "models")
        for key in (("PodMonitor", "tidepool-controller"),
                    ("PodMonitor", "tidepool-fleets"),
                    ("PrometheusRule", "tidepool")):
            monitor = manifests[key]["metadata"]
            self.assertEqual(monitor["namespace"], "monitoring")
            self.assertEqual(monitor["labels"]["release"], "prometheus")
        fleets = manifests["PodMonitor", "tidepool-fleets"]["spec"]
        self.assertEqual(fleets["namespaceSelector"],
                         {"matchNames": ["models"]})
        self.assertEqual(fleets["podMetricsEndpoints"][0]["interval"], "1m")
        check = manifests["Job", "tidepool-check-uninstall"]["spec"]
        self.assertEqual(check["template"]["spec"]["containers"][0]["args"],
                         ["--check-uninstall", "--watch-namespace=models"])
        test = manifests["Pod", "tidepool-test-controller"]["spec"]
        self.assertEqual(test["containers"][0]["args"],
                         ["--check-install", "--watch-namespace=models"])
        test = manifests["Pod", "tidepool-test-fleet-llama"]
        self.assertEqual(test["metadata"]["namespace"], "models")
        test = test["spec"]["containers"][0]
        self.assertIn("--url=http://llama-conductor", test["args"])
        self.assertEqual(test["env"][0]["valueFrom"]["secretKeyRef"]["name"],
                         "llama-keys")

    def test_flags_are_those_of_the_program(self):
        program = BIN / "tidepool-controller"
        if not program.exists():
            self.skipTest(f"SKIPPED: there is no {program}")
        said = subprocess.run([program, "--help"], check=True, text=True,
                              capture_output=True, timeout=60).stdout
        known = set(re.findall(r"--([a-z0-9-]+)", said))
        schema = json.loads((CHART / "values.schema.json").read_text())
        flags = schema["properties"]["flags"]["properties"]
        self.assertLessEqual({*flags, "check-install", "check-uninstall"},
                             known)

    def test_what_other_apis_need_is_made_where_they_are(self):
        self.assertEqual(
            {kind for kind, _ in self.render()} &
            {"PodMonitor", "PrometheusRule"}, set())
        self.assertLessEqual(
            {"PodMonitor", "PrometheusRule"},
            {kind for kind, _ in self.render(api=PROMETHEUS)})
        off = self.render("--values", TESTDATA / "good/monitoring-off.yaml",
                          api=PROMETHEUS)
        self.assertEqual({kind for kind, _ in off} &
                         {"PodMonitor", "PrometheusRule"}, set())

    def test_alerts_are_about_metrics_that_there_are(self):
        rules = self.render(api=PROMETHEUS)["PrometheusRule", "tidepool"]
        alerts = rules["spec"]["groups"][0]["rules"]
        sources = "".join(
            path.read_text() for folder in ("dataplane", "controller")
            for path in (programs.ROOT / folder).rglob("*.cc")
            if "metrics" in path.name or path.name == "main.cc")
        for alert in alerts:
            with self.subTest(alert["alert"]):
                self.assertIn("description", alert["annotations"])
                for metric in re.findall(r"tidepool_(?!dev_)[a-z_]+",
                                         alert["expr"]):
                    self.assertIn(f'"{metric}"', sources)

    def test_nobody_is_missed_who_is_not_looked_for(self):
        """Without a PodMonitor the controller's metrics are always absent."""
        rules = self.render("--set", "monitoring.podMonitor.enabled=false",
                            api=PROMETHEUS)["PrometheusRule", "tidepool"]
        alerts = rules["spec"]["groups"][0]["rules"]
        self.assertGreater(len(alerts), 1)
        self.assertNotIn("absent(", "".join(a["expr"] for a in alerts))

    def test_samples_wait_for_their_kinds(self):
        manifests = self.render("--set", "samples.enabled=true")
        self.assertEqual(
            manifests["KVCachePool", "demo"]["metadata"]["annotations"][
                "helm.sh/hook"], "post-install")
        manifests = self.render("--set", "samples.enabled=true",
                                "--is-upgrade")
        self.assertNotIn("annotations",
                         manifests["KVCachePool", "demo"]["metadata"])
        self.assertIn(("KVCachePool", "demo"), manifests)
        self.assertIn(("PrefillPool", "demo-prefill"), manifests)
        self.assertIn(("DecodePool", "demo-decode"), manifests)
        self.assertIn(("Pod", "tidepool-test-fleet-demo"), manifests)

    def test_the_schemas_are_whole_and_kept(self):
        manifests = self.render()
        for kind in ("kvcachepools", "prefillpools", "decodepools"):
            made = manifests["CustomResourceDefinition",
                             f"{kind}.tidepool.dev"]
            source = programs.ROOT / f"crds/v1alpha1/{kind}.yaml"
            self.assertEqual(made["spec"],
                             yaml.safe_load(source.read_text())["spec"])
            self.assertEqual(made["metadata"]["annotations"],
                             {"helm.sh/resource-policy": "keep"})

    def test_rights_are_few(self):
        everywhere = self.render()
        only_there = self.render("--values",
                                 TESTDATA / "good/one-namespace.yaml")
        role = everywhere["ClusterRole", "tidepool-controller"]
        self.assertEqual(
            only_there["Role", "tidepool-controller"]["metadata"]["namespace"],
            "models")
        self.assertEqual(only_there["Role", "tidepool-controller"]["rules"],
                         role["rules"])
        self.assertNotIn("ClusterRole", {kind for kind, _ in only_there})
        self.assertNotIn("ClusterRoleBinding",
                         {kind for kind, _ in only_there})
        for rule in role["rules"]:
            for field in ("apiGroups", "resources", "verbs"):
                self.assertNotIn("*", rule[field])
            self.assertNotIn("rbac.authorization.k8s.io", rule["apiGroups"])
            if "delete" in rule["verbs"]:
                self.assertLessEqual(set(rule["resources"]), {
                    "pods", "networkpolicies", "ingresses", "httproutes"})
            if "secrets" in rule["resources"]:
                self.assertEqual(set(rule["verbs"]),
                                 {"get", "create", "patch"})
            if {"kvcachepools", "prefillpools"} & set(rule["resources"]):
                self.assertEqual(set(rule["verbs"]), {"get", "list", "watch"})


# What helm asks of an operator's API, without the operator.
FOREIGN_KIND = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


class ChartOnServerTest(unittest.TestCase):
    """A release installed, upgraded and uninstalled. Nothing runs the pods, so
    hooks, which are Jobs, never end here."""

    @classmethod
    def setUpClass(cls):
        programs.find("helm")
        cls.cluster = programs.ControlPlane()
        cls.addClassCleanup(cls.cluster.stop)

    def run_in(self, *command, stdin=None):
        done = self.cluster.run(*map(str, command), stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def get(self, *arguments):
        return json.loads(self.run_in("kubectl", "get", *arguments, "-o",
                                      "json"))

    def setUp(self):
        self.space = "system"
        self.run_in("kubectl", "apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": self.space, "labels": {
                    "pod-security.kubernetes.io/enforce": "restricted"}}}))
        self.addCleanup(self.forget)

    def forget(self):
        self.cluster.run("helm", "uninstall", "tide", "-n", self.space,
                         "--no-hooks", "--wait")
        for kind in ("kvcachepools", "prefillpools", "decodepools"):
            self.cluster.run("kubectl", "delete", "crd",
                             f"{kind}.tidepool.dev", "--ignore-not-found")

    def helm(self, verb, *arguments, chart=CHART):
        return self.run_in("helm", verb, "tide", chart, "-n", self.space,
                           *arguments)

    def test_a_release_comes_and_goes(self):
        said = self.helm("install")
        notes = said[said.index("NOTES:"):]
        for text in ("get secret demo-api-key", "/v1/completions",
                     "all namespaces", f"kubectl -n {self.space}"):
            self.assertIn(text, notes)
        self.run_in("kubectl", "apply", "-n", self.space, "-f",
                    programs.ROOT / "crds/v1alpha1/samples/demo.yaml")

        # The hook cannot end: as long as it has not, nothing is removed.
        done = self.cluster.run("helm", "uninstall", "tide", "-n", self.space,
                                "--timeout", "3s")
        self.assertNotEqual(done.returncode, 0)
        self.get("-n", self.space, "deployment/tidepool-controller")
        # As the refusal and the documentation say.
        self.assertIn("uninstalling", self.run_in(
            "helm", "status", "tide", "-n", self.space))
        self.run_in("helm", "rollback", "tide", "1", "-n", self.space)
        self.helm("upgrade")

        self.run_in("helm", "uninstall", "tide", "-n", self.space,
                    "--no-hooks", "--wait", "--timeout", "60s")
        left = self.get("-n", self.space, "deployments,serviceaccounts,roles,"
                        "rolebindings,leases,poddisruptionbudgets")["items"]
        self.assertEqual([o["metadata"]["name"] for o in left], ["default"])
        crds = self.get("crd")["items"]
        self.assertLessEqual(
            {"kvcachepools.tidepool.dev", "prefillpools.tidepool.dev",
             "decodepools.tidepool.dev"},
            {o["metadata"]["name"] for o in crds})
        self.get("-n", self.space, "kvp/demo")  # still there
        self.helm("install")  # takes over what was left

    def test_its_pods_are_admitted_as_restricted(self):
        self.helm("install", "--set", "replicas=2")
        self.run_in("kubectl", "wait", "-n", self.space,
                    "deployment/tidepool-controller", "--timeout=60s",
                    "--for=jsonpath={.status.replicas}=2")

    def test_upgrading_upgrades_the_schemas(self):
        with tempfile.TemporaryDirectory() as folder:
            old = pathlib.Path(folder) / "tidepool"
            shutil.copytree(CHART, old)
            path = old / "files/v1alpha1/prefillpools.yaml"
            crd = yaml.safe_load(path.read_text())
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            del schema["properties"]["spec"]["properties"]["chunkTokens"]
            path.write_text(yaml.safe_dump(crd))
            self.helm("install", chart=old)
        self.helm("upgrade")
        schema = self.get("crd/prefillpools.tidepool.dev")["spec"]["versions"][
            0]["schema"]["openAPIV3Schema"]
        self.assertIn("chunkTokens",
                      schema["properties"]["spec"]["properties"])

    def test_samples_may_come_with_the_chart(self):
        said = self.helm("install", "--set", "samples.enabled=true")
        self.assertIn("Wait for the sample fleet", said)
        uid = self.get("-n", self.space, "kvp/demo")["metadata"]["uid"]
        # An upgrade takes them over, whether it wants them or not later on.
        self.helm("upgrade", "--set", "samples.enabled=true")
        self.assertEqual(
            self.get("-n", self.space, "kvp/demo")["metadata"]["uid"], uid)
        self.helm("upgrade", "--set", "samples.enabled=false")
        self.assertEqual(self.get("-n", self.space, "tidepool")["items"], [])

    def test_samples_replace_nobodys_fleet(self):
        self.helm("install")
        self.run_in("kubectl", "apply", "-n", self.space, "-f",
                    programs.ROOT / "crds/v1alpha1/samples/demo.yaml")
        uid = self.get("-n", self.space, "kvp/demo")["metadata"]["uid"]
        self.run_in("helm", "uninstall", "tide", "-n", self.space,
                    "--no-hooks", "--wait")
        done = self.cluster.run(
            "helm", "install", "tide", str(CHART), "-n", self.space, "--set",
            "samples.enabled=true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("already exists", done.stderr)
        self.assertEqual(
            self.get("-n", self.space, "kvp/demo")["metadata"]["uid"], uid)

    def test_samples_follow_with_an_upgrade(self):
        self.helm("install")
        self.run_in("kubectl", "wait", "--for=condition=Established",
                    "crd/kvcachepools.tidepool.dev", "--timeout=60s")
        self.helm("upgrade", "--set", "samples.enabled=true")
        self.get("-n", self.space, "kvp/demo")
        self.helm("upgrade", "--set", "samples.enabled=false")
        self.assertEqual(self.get("-n", self.space, "tidepool")["items"], [])

    def test_monitors_are_made_where_their_api_is(self):
        for kind in ("PodMonitor", "PrometheusRule"):
            crd = FOREIGN_KIND.format(kind=kind, plural=kind.lower() + "s")
            self.run_in("kubectl", "apply", "-f", "-", stdin=crd)
            self.addCleanup(self.run_in, "kubectl", "delete", "-f", "-",
                            stdin=crd)
            self.run_in("kubectl", "wait", "--for=condition=Established",
                        f"crd/{kind.lower()}s.monitoring.coreos.com")
        self.helm("install")
        self.assertEqual(
            len(self.get("-n", self.space, "podmonitors")["items"]), 2)
        self.assertEqual(
            len(self.get("-n", self.space, "prometheusrules")["items"]), 1)

    def as_controller(self, program, *arguments):
        """The program as it runs in a pod: with the chart's account."""
        token = self.run_in("kubectl", "create", "token", "-n", self.space,
                            "tidepool-controller").strip()
        config = json.loads(self.run_in("kubectl", "config", "view", "--raw",
                                        "--flatten", "-o", "json"))
        config["users"] = [{"name": "pod", "user": {"token": token}}]
        config["contexts"][0]["context"]["user"] = "pod"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "kubeconfig"
        path.write_text(json.dumps(config))
        return subprocess.Popen(
            [program, f"--kubeconfig={path}", *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"POD_NAMESPACE": self.space})

    def check_a_fleet_is_made(self, *flags):
        program = BIN / "tidepool-controller"
        if not program.exists():
            self.skipTest(f"SKIPPED: there is no {program}")
        fleet = programs.ROOT / "crds/v1alpha1/samples/demo.yaml"
        self.run_in("kubectl", "apply", "-n", self.space, "-f", fleet)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        controller = self.as_controller(program, f"--metrics-port={port}",
                                        *flags)
        try:
            # Their pods are admitted as restricted, too.
            for workload in ("statefulset/demo-prefill",
                             "statefulset/demo-decode",
                             "deployment/demo-conductor"):
                self.run_in("kubectl", "wait", "-n", self.space, workload,
                            "--for=create", "--timeout=60s")
                self.run_in("kubectl", "wait", "-n", self.space, workload,
                            "--for=jsonpath={.status.replicas}=1",
                            "--timeout=60s")
            self.run_in("kubectl", "wait", "-n", self.space, "kvp/demo",
                        "--for=condition=Ready=false", "--timeout=60s")
            test = self.as_controller(program, "--check-install", *flags)
            told, _ = test.communicate(timeout=60)
            self.assertEqual(test.returncode, 0, told)
            self.assertIn(f"KVCachePool {self.space}/demo: Ready is False",
                          told)
            policy = self.get("-n", self.space, "netpol/demo-conductor")
            self.assertIn(f'"kubernetes.io/metadata.name": "{self.space}"',
                          json.dumps(policy["spec"]["ingress"]))
            with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                metrics = answer.read().decode()
            for metric in (
                    'api_calls_total{code="OK",kind="StatefulSet",'
                    'verb="apply"} ', 'certificate_expiry_seconds ',
                    'leading_ratio 1'):
                self.assertIn(f"tidepool_controller_{metric}", metrics)
        finally:
            controller.terminate()
            said, _ = controller.communicate(timeout=60)
            self.run_in("kubectl", "delete", "-n", self.space, "-f", fleet)
        self.assertNotIn("forbidden", said)

    def test_the_controller_gets_by_with_its_rights(self):
        self.helm("install")
        self.check_a_fleet_is_made()

    def test_the_controller_gets_by_with_the_rights_of_one_namespace(self):
        flag = f"watch-namespace={self.space}"
        self.helm("install", "--set", f"flags.{flag}")
        self.check_a_fleet_is_made(f"--{flag}")

    def test_the_lease_may_be_elsewhere(self):
        self.helm("install")
        self.run_in("kubectl", "create", "namespace", "leases")
        self.addCleanup(self.run_in, "kubectl", "delete", "namespace", "leases",
                        "--wait=false")
        self.run_in("kubectl", "create", "role", "-n", "leases", "leader",
                    "--verb=get,update,create", "--resource=leases")
        self.run_in("kubectl", "create", "rolebinding", "-n", "leases",
                    "leader", "--role=leader",
                    f"--serviceaccount={self.space}:tidepool-controller")
        self.check_a_fleet_is_made("--lease-namespace=leases")

    def test_what_is_left_is_named_before_uninstalling(self):
        program = BIN / "tidepool-controller"
        if not program.exists():
            self.skipTest(f"SKIPPED: there is no {program}")
        self.helm("install")
        fleet = programs.ROOT / "crds/v1alpha1/samples/demo.yaml"
        self.run_in("kubectl", "apply", "-n", self.space, "-f", fleet)
        refusal = self.as_controller(program, "--check-uninstall")
        said, _ = refusal.communicate(timeout=60)
        self.assertEqual(refusal.returncode, 1, said)
        for name in ("KVCachePool", "PrefillPool", "DecodePool"):
            self.assertRegex(said, rf"{name}.*{self.space}/demo")
        self.run_in("kubectl", "delete", "-n", self.space, "-f", fleet)
        consent = self.as_controller(program, "--check-uninstall")
        said, _ = consent.communicate(timeout=60)
        self.assertEqual(consent.returncode, 0, said)

    def test_the_account_may_do_its_work_and_no_more(self):
        self.helm("install")
        account = f"system:serviceaccount:{self.space}:tidepool-controller"

        def may(verb, resource, space="models", part=""):
            done = self.cluster.run(
                "kubectl", "auth", "can-i", verb, resource, "-n", space,
                f"--subresource={part}", "--as", account)
            return done.stdout.strip() == "yes"

        for verb, resource in (
                ("watch", "kvcachepools.tidepool.dev"),
                ("patch", "statefulsets.apps"), ("create", "deployments.apps"),
                ("delete", "pods"), ("patch", "pods"), ("create", "secrets"),
                ("patch", "ingresses.networking.k8s.io"),
                ("create", "events.events.k8s.io")):
            with self.subTest(f"{verb} {resource}"):
                self.assertTrue(may(verb, resource))
        self.assertTrue(may("patch", "prefillpools.tidepool.dev",
                            part="status"))
        self.assertTrue(may("update", "leases.coordination.k8s.io/"
                            "tidepool-controller", self.space))
        for verb, resource in (
                ("patch", "kvcachepools.tidepool.dev"),
                ("list", "secrets"), ("delete", "secrets"),
                ("create", "pods"), ("get", "nodes"),
                ("create", "clusterroles"), ("create", "rolebindings"),
                ("update", "leases.coordination.k8s.io")):
            with self.subTest(f"{verb} {resource}"):
                self.assertFalse(may(verb, resource))
        for verb, resource, part in (
                ("patch", "prefillpools.tidepool.dev", "scale"),
                ("create", "pods", "exec"),
                ("create", "serviceaccounts", "token")):
            with self.subTest(f"{verb} {resource}/{part}"):
                self.assertFalse(may(verb, resource, part=part))


if __name__ == "__main__":
    unittest.main(verbosity=2)
