"""Every object of k8s/ is valid against the schema of Kubernetes, strictly: no unknown field."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

K8S = Path(__file__).parents[3] / "k8s"
CHART = ("Chart.yaml", "values.yaml")  # tests/kubernetes/faults/test_chart.py
FILES = ("rbac.yaml", "pvc.yaml", "network-policy.yaml", "pv-nfs.yaml", "data-job.yaml", "job.yaml")
DOCUMENTS = [(file, document) for file in FILES for document in yaml.safe_load_all((K8S / file).read_text())]


@pytest.mark.parametrize(("file", "document"), DOCUMENTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_is_valid(file: str, document: dict) -> None:
    kubernetes_validate.validate(document, "1.34", strict=True)


def test_every_plain_manifest_is_checked() -> None:
    assert {path.name for path in K8S.glob("*.yaml")} == {*FILES, "kustomization.yaml", *CHART}


def test_an_unknown_field_would_be_noticed() -> None:
    wrong = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"templates": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)
