"""The image of images/build-oci: whether it is the same every time, what is
inside, and whether its programs run with nothing else around them."""

import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

import programs

IMAGES = programs.ROOT / "images"
BIN = pathlib.Path(os.environ.get("TIDEPOOL_BIN",
                                  programs.ROOT / "build/release/bin"))
PROGRAMS = ["tidepool", "tidepool-conductor", "tidepool-controller",
            "tidepool-worker"]
USER = 65532


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        for name in PROGRAMS:
            if not os.access(BIN / name, os.X_OK):
                raise unittest.SkipTest(
                    f"SKIPPED: there is no {BIN / name}; TIDEPOOL_BIN names "
                    "the folder of the programs")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.archive = cls.folder / "image.tar"
        cls.said = cls.build(cls.archive)
        with tarfile.open(cls.archive) as tar:
            cls.files = {entry.name: tar.extractfile(entry).read()
                         for entry in tar.getmembers()}
        index = json.loads(cls.files["index.json"])
        cls.descriptor = index["manifests"][0]
        cls.manifest = cls.document(cls.descriptor)
        cls.config = cls.document(cls.manifest["config"])
        cls.root = cls.folder / "root"
        cls.root.mkdir()
        cls.unpack()

    @staticmethod
    def build(path):
        return subprocess.run(
            [IMAGES / "build-oci", "--bin", BIN, path], check=True, text=True,
            capture_output=True).stdout

    @classmethod
    def blob(cls, descriptor):
        kind, digest = descriptor["digest"].split(":")
        return cls.files[f"blobs/{kind}/{digest}"]

    @classmethod
    def document(cls, descriptor):
        return json.loads(cls.blob(descriptor))

    @classmethod
    def unpack(cls):
        for layer in cls.manifest["layers"]:
            path = cls.folder / "layer.tar"
            path.write_bytes(cls.blob(layer))
            with tarfile.open(path) as tar:
                # /tmp keeps its mode; older Pythons know no filters.
                tar.extraction_filter = lambda entry, _: entry
                tar.extractall(cls.root)

    def test_the_same_programs_give_the_same_bytes(self):
        self.assertEqual(self.build(self.folder / "again.tar"), self.said)
        self.assertEqual((self.folder / "again.tar").read_bytes(),
                         self.archive.read_bytes())

    def test_every_blob_is_what_its_name_says(self):
        for name, data in self.files.items():
            if name.startswith("blobs/sha256/"):
                self.assertEqual(hashlib.sha256(data).hexdigest(),
                                 name.rsplit("/", 1)[1])
        for descriptor in (self.manifest["config"], *self.manifest["layers"]):
            self.assertEqual(len(self.blob(descriptor)), descriptor["size"])

    def test_sizes_and_digest_are_printed(self):
        self.assertRegex(self.said, r"(?m)^archive +\d+\.\d MiB, unpacked ")
        self.assertIn(self.descriptor["digest"], self.said)

    def test_the_sizes_that_are_stated_are_about_right(self):
        stated = re.findall(r"(?m)^\| `(\w+)` \| ([\d.]+) MiB \| ([\d.]+) MiB",
                            (IMAGES / "README.md").read_text())
        self.assertEqual(len(stated), 3)
        for layer, *sizes in stated:
            with self.subTest(layer):
                found = re.search(rf"(?m)^{layer} +([\d.]+) MiB, unpacked +"
                                  r"([\d.]+) MiB", self.said)
                for told, size in zip(sizes, found.groups()):
                    self.assertAlmostEqual(float(told), float(size),
                                           delta=0.2 * float(size))

    def test_both_ways_make_the_same_image(self):
        text = (IMAGES / "Dockerfile").read_text().replace("\\\n", " ")
        final = text[text.index("FROM scratch"):]
        said = self.config["config"]
        self.assertIn(f"USER {said['User']}\n", final)
        self.assertIn(f"WORKDIR {said['WorkingDir']}\n", final)
        self.assertIn(f"ENTRYPOINT {json.dumps(said['Entrypoint'])}", final)
        self.assertIn("ENV " + " ".join(said["Env"]) + "\n", final)
        self.assertEqual(set(re.findall(r"(org\.opencontainers\S+)=", final)),
                         set(said["Labels"]))
        self.assertEqual(
            re.findall(r"COPY --from=build /rootfs/(\w+) /\n", final),
            ["system", "models", "programs"])

    def test_nothing_else_is_inside(self):
        """No shell, no interpreter, nothing with privileges of its own."""
        executables = {str(path.relative_to(self.root))
                       for path in self.root.rglob("*")
                       if path.is_file() and not path.is_symlink() and
                       path.stat().st_mode & 0o100 and
                       not re.search(r"\.so(\.|$)", path.name)}
        self.assertEqual(executables, {f"usr/bin/{name}" for name in PROGRAMS})
        for path in self.root.rglob("*"):
            self.assertFalse(path.is_file() and path.stat().st_mode & 0o6000)

    def inside(self, *command, **options):
        """Starts a program with the image as its root, as the image's user."""
        if os.geteuid() == 0:
            def enter():
                os.chroot(self.root)
                os.chdir("/")
                os.setgroups([])
                os.setgid(USER)
                os.setuid(USER)
            options["preexec_fn"] = enter
        else:
            command = ("unshare", "--user", "--map-root-user", "chroot",
                       str(self.root), *command)
        env = dict(pair.split("=", 1) for pair in self.config["config"]["Env"])
        return subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, **options)

    def test_every_program_runs_alone(self):
        for name in PROGRAMS:
            with self.subTest(name):
                process = self.inside(f"/usr/bin/{name}", "--version")
                said, _ = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, said)
                self.assertRegex(said, rf"^{name} \d+\.\d+\.\d+")

    def test_a_worker_serves_the_demo_model(self):
        ready = self.root / "var/cache/tidepool/ready"
        worker = self.inside(
            "/usr/bin/tidepool-worker", "--model", "demo", "--threads", "1",
            "--ready-file", "/var/cache/tidepool/ready",
            "--kv-cache-memory", "16Mi")
        try:
            deadline = time.monotonic() + 120
            while not ready.exists() and worker.poll() is None and \
                    time.monotonic() < deadline:
                time.sleep(0.05)  # between looks; the deadline decides
            is_ready = ready.exists()
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                said, _ = worker.communicate(timeout=60)
            finally:
                worker.kill()
        self.assertTrue(is_ready, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
