"""The Helm chart of k8s/, as far as it can be judged without Helm; tests/kubernetes/faults/test_chart.py renders it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"
MODES = {"static": K8S, "tasks": K8S / "tasks", "allreduce": K8S / "allreduce"}
# what templates/_kustomize.tpl and _values.tpl do; `replacements` of a component repeat those of the kustomization
DONE = {"apiVersion", "kind", "resources", "components", "images", "configMapGenerator", "replacements"}
DONE_OF_COMPONENTS = {"apiVersion", "kind", "resources", "patches", "configMapGenerator", "replacements", "namespace"}


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


@pytest.mark.parametrize("mode", MODES)
def test_a_kustomization_has_nothing_that_the_chart_does_not_do(mode: str) -> None:
    assert load(MODES[mode] / "kustomization.yaml").keys() <= DONE


@each("path", sorted(K8S.glob("**/components/*/kustomization.yaml")), ids=lambda path: path.parent.name)
def test_a_component_has_nothing_that_the_chart_does_not_do(path: Path) -> None:
    component = load(path)
    assert component.keys() <= DONE_OF_COMPONENTS
    for patch in component.get("patches", []):
        assert patch.keys() <= {"target", "patch"}
        assert patch.get("target", {}).keys() <= {"kind", "name", "labelSelector"}


def test_the_image_is_the_one_that_the_manifests_name() -> None:
    values, images = load(K8S / "values.yaml"), load(K8S / "tasks/kustomization.yaml")["images"]
    assert [(one["name"], one["newTag"]) for one in images] == [
        (values[name]["repository"], values[name]["tag"]) for name in ("image", "etcdImage")
    ]
