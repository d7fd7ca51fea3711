#!/usr/bin/env python3
"""Writes what is made from crds/v1alpha1: `scripts/dev/from_crds.py [--check]`.

That is docs/api.md, and the copies in the Helm chart, which cannot reach outside
its folder. With --check nothing is written; the exit status says whether they
are current. Needs PyYAML (Debian: python3-yaml).
"""

import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRDS = ROOT / "crds/v1alpha1"
PAGE = ROOT / "docs/api.md"
CHART = ROOT / "helm/tidepool/files/v1alpha1"
KINDS = ["kvcachepools", "prefillpools", "decodepools"]

# Structures that several fields have: told once, at the end of the page.
SHARED = {"template": "Pod template", "resources": "Resources",
          "gatewayNamespaceSelector": "Label selector",
          "monitoringNamespaceSelector": "Label selector",
          "conditions": "Conditions"}

HEAD = """\
# API reference: tidepool.dev/v1alpha1

<!-- Made by scripts/dev/from_crds.py from crds/v1alpha1; change those. -->

Three kinds, all of a namespace. Manifests to begin with are in
`crds/v1alpha1/samples`. Fields without a default may be left out unless they are
marked *required*. Whatever breaks a bound or a rule is refused by the API server
with a message that names the field, and so are fields that do not exist, if the
client asks for that: kubectl does; others get a warning, and the field is dropped.

`status` is written by the controller alone; `spec` by you and by autoscalers,
never by the controller.
"""


def anchor(title):
    return "#" + title.lower().replace(" ", "-")


def number(value):
    return f"{value:,}"


def bounds(schema):
    low, high = schema.get("minimum"), schema.get("maximum")
    text = ""
    if low is not None and high is not None:
        text = f" {number(low)} to {number(high)}"
    elif low is not None:
        text = f" ≥ {number(low)}"
    if "multipleOf" in schema:
        text += f", a multiple of {schema['multipleOf']}"
    return text


def type_of(schema):
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_of(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema:
        return f"map of {type_of(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    return kind + (bounds(schema) if kind == "integer" else "")


def default_of(schema, required):
    if required:
        return "*required*"
    value = schema.get("default")
    if value is None or value == {}:
        return ""
    return f"`{value}`"


def cell(text):
    """Table cells end at a bar."""
    return text.replace("|", "\\|")


def rows(schema, prefix):
    """(field, type, default, meaning) of every field below `schema`."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        path = prefix + name
        meaning = cell(field["description"])
        shared = SHARED.get(name)
        if shared:
            meaning += f" See [{shared}]({anchor(shared)})."
        yield (path, type_of(field), default_of(field, name in required),
               meaning)
        if shared:
            continue
        if field.get("type") == "array":
            yield from rows(field["items"], path + "[].")
        else:
            yield from rows(field, path + ".")


def rules(schema, under_shared=False):
    """The messages of every rule below `schema`, each once."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield rule["message"]
    for name, field in schema.get("properties", {}).items():
        if name in SHARED and not under_shared:
            continue
        yield from rules(field)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from rules(schema[inner])


def table(schema, prefix=""):
    lines = ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{path}` | {kind} | {default} | {meaning} |"
              for path, kind, default, meaning in rows(schema, prefix)]
    return "\n".join(lines)


def rule_list(schema, under_shared=False):
    messages = dict.fromkeys(rules(schema, under_shared))
    if not messages:
        return ""
    return "\nRules:\n\n" + "\n".join(f"- {text}" for text in messages) + "\n"


def columns(version):
    return ", ".join(
        f"`{column['name']}`" + ("*" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"])


def find(schema, name):
    """The first field of that name below `schema`."""
    for field_name, field in schema.get("properties", {}).items():
        if field_name == name:
            return field
        found = find(field, name)
        if found:
            return found
    return None


def kind_section(crd):
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    spec, status = (schema["properties"][part] for part in ("spec", "status"))
    name_rules = [r["message"] for r in schema["x-kubernetes-validations"]]
    scale = "" if "scale" not in version["subresources"] else \
        " It has `/scale`, so `kubectl scale` and autoscalers work."
    return f"""
## {names['kind']}

{schema['description']} Short name `{names['shortNames'][0]}`.{scale}

`kubectl get` shows {columns(version)} (* with `-o wide`).

### {names['kind']}: spec

{table(spec)}
{rule_list(spec)}- {name_rules[0]}

### {names['kind']}: status

{table(status)}
"""


def shared_section(title, name, schema):
    items = schema["items"] if schema.get("type") == "array" else schema
    dots = "[]." if items is not schema else "."
    return f"""
## {title}

{table(items, name + dots)}
{rule_list(schema, under_shared=True)}"""


def page():
    crds = [yaml.safe_load((CRDS / f"{kind}.yaml").read_text())
            for kind in KINDS]
    hub = crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    text = HEAD + "".join(kind_section(crd) for crd in crds)
    for title, name in {title: name for name, title in SHARED.items()}.items():
        shown = "selector" if title == "Label selector" else name
        text += shared_section(title, shown, find(hub, name))
    return text


def made():
    """The text of every file that is made."""
    files = {PAGE: page()}
    for name in [f"{kind}.yaml" for kind in KINDS] + ["samples/demo.yaml"]:
        files[CHART / name] = (CRDS / name).read_text()
    return files


def main():
    files = made()
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    old = [str(path.relative_to(ROOT)) for path, text in files.items()
           if not path.exists() or path.read_text() != text]
    if old:
        print(f"{', '.join(old)}: not what crds/v1alpha1 say; run "
              "scripts/dev/from_crds.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
