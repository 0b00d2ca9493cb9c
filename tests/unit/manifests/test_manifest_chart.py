"""The Helm chart of k8s/, as far as it can be judged without Helm; tests/kubernetes/faults/test_chart.py renders it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from make_chart import digest

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = load(K8S / "Chart.yaml")
    (version,) = re.findall(r'version="([0-9.]+)"', (ROOT / "setup.py").read_text())
    assert chart["version"] == chart["appVersion"] == version


def test_every_value_has_a_default_and_a_schema() -> None:
    values, schema = load(K8S / "values.yaml"), json.loads((K8S / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    assert schema["properties"]["mode"]["enum"] == [
        "static",
        "tasks",
        "elastic",
        "allreduce",
    ]  # elastic: the old name of tasks
    assert values["mode"] == "static"
    page = (ROOT / "docs/helm.md").read_text()
    assert not [name for name in values if f"`{name}" not in page]


def test_the_templates_are_made_of_these_manifests() -> None:
    """The test of the cluster writes all templates again; this one needs no kustomize."""
    made_of = (K8S / "templates/_settings.tpl").read_text()
    assert f"made of {digest()} " in made_of, "a manifest has changed: run make chart"


def test_a_variable_of_a_component_may_be_set_without_the_component() -> None:
    """`--set training.env.CONF_PADDLE_PSERVER_NUM=1` had no effect, because a component has this variable, too."""
    text = (K8S / "templates/static/job.yaml").read_text()
    known = re.search(r"range .*omit \.Values\.training\.env (.*) }}", text)
    conditional = re.findall(r"{{- if (.*) }}\n +- (?:\{name: |name: )([A-Z]\w+)", text)
    assert known and {"ENTRY", "CONF_PADDLE_PSERVER_NUM"} <= {name for _, name in conditional}
    for condition, name in conditional:
        assert f'(hasKey .Values.training.env "{name}")' in condition and f'"{name}"' in known[1]


def test_the_image_is_the_one_that_the_manifests_name() -> None:
    values, images = load(K8S / "values.yaml"), load(K8S / "tasks/kustomization.yaml")["images"]
    assert [(one["name"], one["newTag"]) for one in images] == [
        (values[name]["repository"], values[name]["tag"]) for name in ("image", "etcdImage")
    ]
