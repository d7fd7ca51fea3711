"""The tree's own rules, checked in seconds: `python3 tests/lint/lint.py`.

Layers point down only; files and functions stay small (a ratchet lists what is
larger and may only shrink); metric names follow the convention; what CMake
looks for is installed by scripts/setup; formatting is clang-format's; nothing
names a machine.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATCHET = ROOT / "tests/lint/ratchet.json"

# What each folder's code may include, besides itself (DESIGN: parts).
LAYERS = {
    "dataplane/base": [],
    "dataplane/model": ["base"],
    "dataplane/prefix": ["base"],
    "dataplane/transfer": ["base"],
    "dataplane/engine": ["base", "model", "prefix", "transfer"],
    "dataplane/rpc": ["base"],
    "dataplane/scheduling": ["base", "model", "prefix", "transfer"],
    # Between a planner that keeps its plan in memory and a live fleet.
    "dataplane/fleet": ["base", "rpc", "scheduling"],
    "dataplane/worker": ["base", "model", "prefix", "transfer", "engine",
                         "rpc", "scheduling"],
    # The conductor knows a worker by its protocol only: no engine here.
    "dataplane/conductor": ["base", "model", "prefix", "rpc", "scheduling"],
    "dataplane/cli": ["base", "model", "prefix", "transfer", "engine",
                      "scheduling", "fleet", "worker", "conductor"],
    # The controller knows the dataplane by its protocols and by who is who in
    # it (dataplane/rpc: it issues the certificates), and shares the planner;
    # inside it, kube -> runtime -> reconcilers.
    "controller/kube": ["base"],
    "controller/runtime": ["base"],
    "controller/reconcilers": ["base", "rpc", "scheduling"],
}
CONTROLLER_LAYERS = {
    "kube": [], "runtime": ["kube"], "reconcilers": ["kube", "runtime"]}
# Folders that must build without gRPC and protobuf.
BARE = ["dataplane/base", "dataplane/model", "dataplane/prefix",
        "dataplane/transfer", "dataplane/engine", "kernels"]

# The distribution's package of every library that CMake looks for.
PACKAGES = {
    "CURL": "libcurl4-openssl-dev", "GTest": "libgtest-dev",
    "OpenSSL": "libssl-dev", "PCRE2": "libpcre2-dev",
    "PkgConfig": "pkg-config", "CARES": "libc-ares-dev", "Protobuf": "libprotobuf-dev",
    "UTF8PROC": "libutf8proc-dev", "absl": "libabsl-dev",
    "benchmark": "libbenchmark-dev", "fmt": "libfmt-dev",
    "gRPC": "libgrpc++-dev", "nlohmann_json": "nlohmann-json3-dev",
    "prometheus-cpp": "prometheus-cpp-dev", "simdjson": "libsimdjson-dev",
    "spdlog": "libspdlog-dev", "yaml-cpp": "libyaml-cpp-dev",
}
COMES_WITH_CMAKE = {"Threads"}

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
METRIC = re.compile(
    r'"(tidepool_[a-z0-9_]+|vllm:[a-z0-9_]+)"')
METRIC_UNITS = ("_total", "_seconds", "_bytes", "_ratio", "_info", "_tokens",
                "_pages", "_requests", "_sequences", "_workers",
                "_connections", "_objects", "_perc", "_running", "_waiting")
FORBIDDEN = re.compile(r"/root/|/Users/|/tmp/[a-z]")


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT,
                         capture_output=True, check=True).stdout.decode()
    return [p for p in out.split("\0") if p and (ROOT / p).exists()]


def code_files():
    return tracked("*.h", "*.cc", "*.cu", "*.cuh")


def check_layers(files):
    include = re.compile(r'^#include [<"](dataplane/(\w+)/|grpc|google/protobuf'
                         r'|tidepool/\w+/v1/)', re.M)
    for path in files:
        parts = path.split("/")
        folder = "/".join(parts[:2]) if parts[0] in ("dataplane", "controller") \
            else parts[0]
        if folder.count("/") == 1 and len(parts) > 2 and \
                folder not in LAYERS:
            yield f"{path}: {folder} has no place in LAYERS"
        text = (ROOT / path).read_text()
        for match in include.finditer(text):
            used = match.group(2)
            if used is None:
                if folder in BARE:
                    yield f"{path}: {match.group(0)}…: {folder} builds " \
                          "without gRPC and protobuf"
            elif folder in LAYERS and used != parts[1] and \
                    used not in LAYERS[folder]:
                yield f"{path}: includes dataplane/{used}, which is not " \
                      f"below {folder}"
        if folder in LAYERS and parts[0] == "controller":
            for used in re.findall(r'^#include "controller/(\w+)/', text, re.M):
                if used != parts[1] and \
                        used not in CONTROLLER_LAYERS[parts[1]]:
                    yield f"{path}: includes controller/{used}, which is " \
                          f"not below {folder}"


def bare(line):
    """The line without string and character literals and its comment."""
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])+\'', "0", line)
    return line.split("//")[0]


def functions(text):
    """(name, lines) of every function outside other functions."""
    lines = [bare(line) for line in
             re.sub(r'R"(\w*)\(.*?\)\1"', lambda m: "\n" * m[0].count("\n"),
                    text, flags=re.S).split("\n")]
    body = re.compile(r"[)}>] ?(const |override |noexcept |final |mutable "
                      r"|-> \S+ )*\{$|[\w:]+ \{$")
    scope = re.compile(r"^\s*(namespace|(typedef )?(template.*)?(class|struct|"
                       r"enum|union)|extern)\b[^()]*\{$")
    i = 0
    while i < len(lines):
        line = lines[i].rstrip()
        if line.endswith("{") and body.search(line) and not scope.match(line) \
                and (line[0] != " " or ")" in line):
            depth, j = 0, i
            while j < len(lines):
                depth += lines[j].count("{") - lines[j].count("}")
                if depth <= 0:
                    break
                j += 1
            yield line.strip(), j - i + 1
            i = j
        i += 1


def check_sizes(files, ratchet):
    used = set()
    for path in files:
        text = (ROOT / path).read_text()
        sizes = {path: text.count("\n")}
        limit = {path: FILE_LINES_MAX}
        for name, length in functions(text):
            key = f"{path}: {name}"
            sizes[key] = max(length, sizes.get(key, 0))
            limit[key] = FUNCTION_LINES_MAX
        for key, size in sizes.items():
            allowed = ratchet.get(key, limit[key])
            if key in ratchet:
                used.add(key)
                if size < ratchet[key]:
                    yield f"{key}: {size} lines now: lower its entry in " \
                          "ratchet.json (or drop it)"
            if size > allowed:
                yield f"{key}: {size} lines, at most {allowed}"
    for key in set(ratchet) - used:
        yield f"ratchet.json: {key} is gone: drop its entry"


def check_metrics(files):
    for path in files:
        if path.endswith("_test.cc") or path.startswith("tests/"):
            continue
        for match in METRIC.finditer((ROOT / path).read_text()):
            name = match.group(1)
            if name.startswith("tidepool_") and not name.endswith(METRIC_UNITS):
                yield f"{path}: metric {name} does not end in its unit"


def check_packages():
    """scripts/setup installs whatever CMake looks for."""
    installed = set((ROOT / "scripts/setup").read_text().split())
    wanted = re.compile(r"^\s*(?:find_package|pkg_check_modules)\(([\w-]+)",
                        re.M)
    for path in tracked("*CMakeLists.txt", "*.cmake"):
        for name in wanted.findall((ROOT / path).read_text()):
            if name in COMES_WITH_CMAKE:
                continue
            if PACKAGES.get(name) not in installed:
                yield f"{path}: scripts/setup does not install {name} " \
                      f"({PACKAGES.get(name, 'of no known package')})"


def check_readmes():
    for folder in sorted({p.rsplit("/", 1)[0] for p in code_files()}):
        parts = folder.split("/")
        top = "/".join(parts[:2])
        if not (ROOT / top / "README.md").exists():
            yield f"{top}: has no README.md"


def check_words():
    for path in tracked():
        if path == "tests/lint/lint.py" or path.startswith("models/") or \
                "/testdata/" in path:
            continue
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if FORBIDDEN.search(line):
                yield f"{path}:{number}: names a path of one machine"


def check_format(files):
    out = subprocess.run(["clang-format", "--dry-run", "-Werror", *files],
                         cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        bad = sorted({line.split(":")[0] for line in out.stderr.split("\n")
                      if "clang-format-violations" in line})
        for path in bad:
            yield f"{path}: not formatted (make format)"


def main():
    files = code_files()
    ratchet = json.loads(RATCHET.read_text())
    problems = [
        *check_layers(files), *check_sizes(files, ratchet),
        *check_metrics(files), *set(check_packages()),
        *set(check_readmes()), *check_words(), *check_format(files),
    ]
    for problem in problems:
        print(problem)
    print(f"lint: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
