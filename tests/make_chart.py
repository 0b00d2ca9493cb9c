"""Writes k8s/templates/ of the Helm chart from the manifests and components of k8s/ (`make chart`).

kustomize builds each mode without components and with each component. Where a field differs, the template has an `if`.
So the manifests and components are written by hand only once, and Helm interprets nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).parents[1] / "k8s"
MODES = {"static": ".", "tasks": "tasks", "allreduce": "allreduce"}
OFFERED = re.compile(r"^#  - (\S*components/\S+)", re.MULTILINE)
IMAGES = {"REPO/paddle:mypaddle": "image", "REPO/etcd:v3.5": "etcdImage"}
SERVER = {"192.0.2.1/32": "cidr", "port: 443": "port"}  # of the component s3 -> the value
PARTS = {"paddle-data": "data", "trainer": "training"}  # container -> the value that has its variables
ENABLED = {"access": "", "volume": "", "data": "data"}  # component of an object -> the value that leaves it out
COMPUTED = {"minimum": '(sub (int (include "static.count" .)) 1)'}  # kustomize cannot compute it
PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:=,-]*[A-Za-z0-9_/]|[A-Za-z/]")
WIDTH = 110  # maximum length of a line without its indent
ABSENT = object()

Path_ = tuple[str, ...]
Cases = dict[str | None, Any]
"""What a field has without components (None), and with each component."""


def digest() -> str:
    """Return a digest of all that the templates are made of; comments do not count."""
    files = sorted(path for path in K8S.rglob("*.yaml") if not {"templates", "autoscaler"} & set(path.parts))
    texts = {
        str(path.relative_to(K8S)): path.read_text() for path in files if path.name not in ("Chart.yaml", "values.yaml")
    }
    parts = [[name, OFFERED.findall(text), list(yaml.safe_load_all(text))] for name, text in texts.items()]
    return hashlib.sha256(json.dumps([parts, Path(__file__).read_text()]).encode()).hexdigest()


class Mode:
    """One mode of the chart: its components and settings, and the objects that kustomize makes of them.

    Args: copy: a copy of k8s/, whose kustomization files are changed.
    """

    def __init__(self, name: str, copy: Path) -> None:
        self.name = name
        self._folder = copy / MODES[name]
        text = self._read(".")
        self.places = {Path(place).name: place for place in OFFERED.findall(text)}
        self.components = list(self.places)
        self.defaults: dict[str, Cases] = {}  # setting -> its defaults
        for who, place in {None: ".", **self.places}.items():
            for one in yaml.safe_load(self._read(place)).get("configMapGenerator", []):
                for setting, _, default in (pair.partition("=") for pair in one["literals"]):
                    self.defaults.setdefault(setting, {})[who] = default
        # settings have these values while kustomize runs; fields that are numbers need numbers
        self.tokens = {
            str(910_001 + number) if str(next(iter(cases.values()))).isdigit() else f"THE-{name}": name
            for number, (name, cases) in enumerate(self.defaults.items())
        }
        for place in self.places.values():
            self._write(place)

    def _read(self, place: str) -> str:
        return (K8S / MODES[self.name] / place / "kustomization.yaml").read_text()

    def _write(self, place: str, **more: Sequence[str]) -> None:
        kustomization = {**yaml.safe_load(self._read(place)), **more}
        tokens = {name: token for token, name in self.tokens.items()}
        for one in kustomization.get("configMapGenerator", []):
            names = [pair.partition("=")[0] for pair in one["literals"]]
            one["literals"] = [f"{name}={tokens[name]}" for name in names]
        (self._folder / place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    def build(self, *components: str) -> dict[tuple[str, str], Any]:
        """Return the objects that kustomize makes, by kind and name."""
        self._write(".", components=[place for name, place in self.places.items() if name in components])
        done = subprocess.run(["kubectl", "kustomize", self._folder], check=True, capture_output=True, text=True)
        objects = [one for one in yaml.safe_load_all(done.stdout) if one]
        return {(one["kind"], one["metadata"]["name"]): one for one in objects}

    def objects(self) -> Iterator[tuple[str | None, Cases]]:
        """Yield (the component that makes an object, or None; the object's cases)."""
        base, built = self.build(), {name: self.build(name) for name in self.components}
        for key, one in base.items():
            yield None, {None: one, **{name: found.get(key, ABSENT) for name, found in built.items()}}
        for maker, found in built.items():
            added = sorted(found.keys() - base.keys())
            # two components that make the same object cannot be combined
            others = [name for name in self.components if added and not set(added) & built[name].keys()]
            both = {name: self.build(maker, name) for name in others}
            for key in added:
                yield maker, {None: found[key], **{name: both[name][key] for name in others}}


class Writer:
    """Writes the lines of a template. `path` has the names of all fields above a value, first the object's kind."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._is_training = False

    def file(self, maker: str | None, cases: Cases) -> str:
        """Return the template of one object."""
        one = cases[None]
        gone = [who for who, other in cases.items() if other is ABSENT]
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        self._is_training = component == "training"
        enabled = ENABLED.get(component, "training")
        conditions = [f'(eq (include "paddle.mode" .) "{self._mode.name}")']
        conditions += [f".Values.{enabled}.enabled"] * bool(enabled)
        conditions += [_has([maker])] * bool(maker) + [f"(not {_has(gone)})"] * bool(gone)
        lines = self.fields((one["kind"],), {who: other for who, other in cases.items() if other is not ABSENT})
        condition = f"and {' '.join(conditions)}" if len(conditions) > 1 else conditions[0].strip("()")
        return "\n".join([f"{{{{- if {condition} }}}}", "---", *_joined(lines), "{{- end }}", ""])

    def fields(self, path: Path_, cases: Cases) -> list[str]:
        """Return the lines of an object's fields."""
        names = dict.fromkeys(name for one in cases.values() for name in one)
        is_pod = path[-2:] == ("template", "spec") and self._is_training
        if is_pod:
            names.pop("nodeSelector", None)
        first = [name for name in ("apiVersion", "kind", "name", "mountPath") if name in names]
        ordered = [*first, *(name for name in names if name not in first)]
        lines = [
            line
            for name in ordered
            for line in self.field(path, name, {who: one.get(name, ABSENT) for who, one in cases.items()})
        ]
        return [*lines, *self._nodes(cases)] if is_pod else lines

    def _nodes(self, cases: Cases) -> list[str]:
        """Return the lines of the node selector: the value of the chart, and the labels of components."""
        lines, nodes = [], ".Values.training.nodeSelector"
        for who, one in cases.items():
            if "nodeSelector" in one:
                labels = " ".join(
                    f"{json.dumps(key)} {json.dumps(value)}" for key, value in one["nodeSelector"].items()
                )
                lines += [f"{{{{- $nodes := {nodes} }}}}", f"{{{{- if {_has([who])[1:-1]} }}}}"]
                lines += [f"{{{{- $nodes = merge (dict) $nodes (dict {labels}) }}}}", "{{- end }}"]
                nodes = "$nodes"
        return [*lines, f"{{{{- with {nodes} }}}}", "nodeSelector: {{ toJson . }}", "{{- end }}"]

    def field(self, path: Path_, name: str, cases: Cases) -> list[str]:
        """Return the lines of one field, with an `if` where components change it."""
        base, place = cases[None], (*path, name)
        changed = [who for who, one in cases.items() if who is not None and one != base]
        with_field = {who: one for who, one in cases.items() if one is not ABSENT}
        if changed and len(with_field) < len(cases):
            if base is not ABSENT:
                gone = [who for who in changed if cases[who] is ABSENT]
                return [f"{{{{- if not {_has(gone)} }}}}", *self.field(path, name, with_field), "{{- end }}"]
            kind = type(with_field[changed[0]])
            begin = {**with_field, None: with_field[changed[0]] if len(changed) == 1 or kind is str else kind()}
            return [f"{{{{- if {_has(changed)[1:-1]} }}}}", *self.field(path, name, begin), "{{- end }}"]
        values = [base, *(cases[who] for who in changed)]
        short = self.text(place, base)
        if not changed and len(short) + len(name) < WIDTH and not self._has_values(place):
            return [f"{name}: {short}"]
        if all(isinstance(one, dict) and one for one in values if one != {}) and any(values):
            return self._special(place, [f"{name}:", *_indent(self.fields(place, cases))])
        if all(isinstance(one, list) for one in values) and (key := _key_of([item for one in values for item in one])):
            return [f"{name}:", *self.items(place, key, cases)]
        if not changed:
            return [f"{name}: {short}"]
        lines = []
        for who in reversed(changed):
            word = "else if" if lines else "if"
            lines += [f"{{{{- {word} {_has([who])[1:-1]} }}}}", f"{name}: {self.text(place, cases[who])}"]
        return [*lines, "{{- else }}", f"{name}: {short}", "{{- end }}"]

    def _has_values(self, place: Path_) -> bool:
        """Return whether values of the chart other than settings reach a field of this object or list."""
        ends = (("nfs",), ("template", "spec"), ("spec",), ("containers",), ("trainer", "resources"))
        return any(place[-len(end) :] == end for end in ends) or (place[-1] == "env" and place[-2] in PARTS)

    def _special(self, place: Path_, lines: list[str]) -> list[str]:
        if place[-3:] != ("containers", "trainer", "resources"):
            return lines
        given = ["{{- with .Values.training.resources }}", "resources: {{ toJson . }}", "{{- else }}"]
        return [*given, *lines, "{{- end }}"]

    def items(self, path: Path_, key: str, cases: Cases) -> list[str]:
        """Return the lines of a list whose items have names."""
        named = {who: {item[key]: item for item in items} for who, items in cases.items()}
        lines = []
        part = PARTS.get(path[-2]) if path[-1] == "env" else None
        for name in dict.fromkeys(name for items in named.values() for name in items):
            of_item = {who: items.get(name, ABSENT) for who, items in named.items()}
            having = [who for who, item in of_item.items() if item is not ABSENT]
            present = {who: of_item[who] for who in having}
            if None not in present:
                present[None] = present[having[0]]
            begin, *rest = self.fields((*path, name), present)
            short = f"- {{{', '.join([begin, *rest])}}}"
            is_short = len(short) <= WIDTH and all(re.match(r"[A-Za-z]+: .", line) for line in rest)
            item_lines = [short] if is_short else [f"- {begin}", *_indent(rest)]
            if None not in having:
                when = _has(having)[1:-1]
                if part:  # a variable of a component may also be set without the component
                    when = f'or ({when}) (hasKey .Values.{part}.env "{name}")'
                item_lines = [f"{{{{- if {when} }}}}", *item_lines, "{{- end }}"]
            lines += item_lines
        if part:
            known = " ".join(json.dumps(name) for name in sorted({name for items in named.values() for name in items}))
            lines += [
                f"{{{{- range $name, $value := omit .Values.{part}.env {known} }}}}",
                '- {name: {{ $name }}, value: {{ $value | include "paddle.text" | quote }}}',
                "{{- end }}",
            ]
        return _indent(lines)

    def text(self, path: Path_, value: Any) -> str:
        """Return a value in YAML, with `{{ ... }}` for what the values of the chart set."""
        if path[0] == "PersistentVolume" and path[-2] == "nfs" and path[-1] in ("server", "path"):
            return f"{{{{ .Values.nfs.{path[-1]} | quote }}}}"
        if path[-3::2] == ("env", "value") and path[-4] in PARTS:
            given = f"dig {json.dumps(path[-2])} {self._expression(value)} .Values.{PARTS[path[-4]]}.env"
            return f'{{{{ {given} | include "paddle.text" | quote }}}}'
        if str(value) in self._mode.tokens:
            return f"{{{{ {self._expression(str(value))[1:-1]}{' | quote' * isinstance(value, str)} }}}}"
        if isinstance(value, str):
            text = value if PLAIN.fullmatch(value) and yaml.safe_load(value) == value else json.dumps(value)
        else:
            text = (
                yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
                .removesuffix("...\n")
                .strip()
            )
        for image, name in IMAGES.items():
            text = text.replace(image, f"{{{{ .Values.{name}.repository }}}}:{{{{ .Values.{name}.tag }}}}")
        for example, name in SERVER.items() if path[0] == "NetworkPolicy" else ():
            text = text.replace(example, example.replace(example.split()[-1], f"{{{{ .Values.s3.{name} }}}}"))
        for token, name in self._mode.tokens.items():
            text = text.replace(token, f'{{{{ include "{self._mode.name}.{name}" . }}}}')
        return text

    def _expression(self, value: str) -> str:
        """Return an expression of a template for a text in which settings may occur."""
        tokens = self._mode.tokens
        parts = [part for part in re.split("|".join(f"({re.escape(token)})" for token in tokens), value) if part] or [
            ""
        ]
        texts = [
            f'(include "{self._mode.name}.{tokens[part]}" .)' if part in tokens else json.dumps(part) for part in parts
        ]
        return texts[0] if len(texts) == 1 else f"(print {' '.join(texts)})"


def _has(components: Iterable[str | None]) -> str:
    found = [f'(has "{name}" .Values.components)' for name in components]
    return found[0] if len(found) == 1 else f"(or {' '.join(found)})"


def _joined(lines: Iterable[str]) -> list[str]:
    """Join blocks with the same condition that follow each other."""
    found: list[str] = []
    begins: list[str] = []  # of the open blocks
    ended = ""  # the condition of the block that the last line ended
    for line in lines:
        if line.startswith(("{{- if", "{{- with", "{{- range")):
            begins.append(line)
            if line == ended:
                found.pop()
                ended = ""
                continue
        ended = begins.pop() if line == "{{- end }}" else ""
        if line.startswith("{{- else"):
            begins[-1] = ""
        found.append(line)
    return found


def _indent(lines: Iterable[str]) -> list[str]:
    return [line if line.startswith("{{-") else f"  {line}" for line in lines]


def _key_of(items: Sequence[Any]) -> str:
    """Return the field that names the items of a list, or ""."""
    keys = ("mountPath", "name")
    return next((key for key in keys if items and all(isinstance(item, dict) and key in item for item in items)), "")


def write(folder: Path, copy: Path) -> None:
    """Write all templates.

    Args: folder: k8s/templates.  copy: a copy of k8s/.
    """
    settings = ["{{/* Written by `make chart`: the settings and components of each mode, and their defaults. */}}"]
    for name in MODES:
        mode = Mode(name, copy)
        settings += _settings(mode)
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
        for maker, cases in mode.objects():
            file = folder / name / f"{_source_of(maker, mode, cases[None])}.yaml"
            begun = file.read_text() if file.exists() else "{{- /* Written by `make chart` */}}\n"
            file.write_text(begun + Writer(mode).file(maker, cases))
    (folder / "_settings.tpl").write_text("\n".join([*settings, f"{{{{/* made of {digest()} */}}}}", ""]))


def _source_of(maker: str | None, mode: Mode, one: Any) -> str:
    """Return the name of the manifest that has an object, without its suffix."""
    folder = K8S / MODES[mode.name] / (mode.places[maker] if maker else ".")
    for file in sorted(folder.glob("*.yaml")):
        for other in yaml.safe_load_all(file.read_text()):
            if other.get("kind") == one["kind"] and other["metadata"]["name"] == one["metadata"]["name"]:
                return file.stem
    return str(one["kind"]).lower()


def _settings(mode: Mode) -> list[str]:
    lines = []
    for name, cases in mode.defaults.items():
        base, *others = cases
        default = COMPUTED.get(name, json.dumps(cases[base]))
        lines += [f'{{{{- define "{mode.name}.{name}" }}}}', f"{{{{- $default := {default} }}}}"]
        for who in (who for who in others if cases[who] != cases[base]):
            lines += [f"{{{{- if {_has([who])[1:-1]} }}}}{{{{ $default = {json.dumps(cases[who])} }}}}{{{{ end }}}}"]
        lines += [f'{{{{- dig "{name}" $default .Values.settings | include "paddle.text" }}}}', "{{- end }}"]
    lines += [f'{{{{- define "{mode.name}.components" }}}}{" ".join(mode.components)}{{{{ end }}}}']
    always = sorted(name for name, cases in mode.defaults.items() if None in cases)
    lines += [f'{{{{- define "{mode.name}.settings" }}}}{" ".join(always)}']
    for who in mode.components:
        more = sorted(name for name, cases in mode.defaults.items() if next(iter(cases)) == who)
        if more:
            lines += [f"{{{{- if {_has([who])[1:-1]} }}}} {' '.join(more)}{{{{ end }}}}"]
    return [*lines, "{{- end }}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(K8S, Path(directory) / "k8s", symlinks=True)
        write(Path(sys.argv[1]) if sys.argv[1:] else K8S / "templates", Path(directory) / "k8s")
