"""The Helm chart of k8s/ makes the same objects as kustomize, and a job that it makes trains."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from docpages.blocks import ROOT, blocks_of, script
from docpages.project import copy_project, run_script
from kubernetes_cluster import REPOSITORY, Cluster, Image, give, namespace_with_volume
from long_job import JOB
from make_chart import write
from test_cluster_docs import own_context

MODES = {"static": "k8s", "tasks": "k8s/tasks", "allreduce": "k8s/allreduce"}
OFFERED = re.compile(r"^#  - (\S*components/\S+)", re.MULTILINE)


def offered(mode: str) -> list[str]:
    """Return the components that the kustomization.yaml of a mode lists, in the order of the list."""
    text = (REPOSITORY / MODES[mode] / "kustomization.yaml").read_text()
    return [Path(line).name for line in OFFERED.findall(text)]


# mode, components, settings
CASES: list[tuple[str, list[str], dict[str, str]]] = [
    *((mode, [], {}) for mode in MODES),
    *((mode, [name], {}) for mode in MODES for name in offered(mode)),
    ("static", [name for name in offered("static") if name != "single-node"], {"count": "5"}),
    ("tasks", ["three-members", "single-node", "restricted"], {"PSERVERS": "3", "JOB_NAME": "another"}),
    ("allreduce", ["nfs", "restricted"], {"NUM_PROC": "4", "MAX_NP": "5"}),
]
CHOSEN = pytest.mark.parametrize(
    ("mode", "components", "settings"), CASES, ids=lambda value: "-".join(value) if isinstance(value, list) else None
)


def render(cluster: Cluster, mode: str, components: list[str], settings: dict[str, Any], *options: str) -> str:
    words = [f"--set=mode={mode}", f"--set-json=components={json.dumps(components)}"]
    words += [f"--set-json=settings={json.dumps(settings)}"]
    return cluster.run("helm", "template", "any", REPOSITORY / "k8s", *words, *options)


def kustomize(cluster: Cluster, directory: Path, mode: str, components: list[str], settings: dict[str, str]) -> str:
    """Return the objects that kustomize makes from a copy of k8s/ that is edited as the docs say."""
    shutil.copytree(REPOSITORY / "k8s", directory / "k8s", symlinks=True)
    file = directory / MODES[mode] / "kustomization.yaml"
    text = file.read_text()
    edits = [(rf"^#(  - \S*components/{name}) ", r"\1 ") for name in components]
    if "count" in settings:
        settings = {"minimum": str(int(settings["count"]) - 1), **settings}
    edits += [(rf"(- |[\[ ]){name}=[^],\n]*", rf"\g<1>{name}={value}") for name, value in settings.items()]
    for pattern, replacement in edits:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count == 1, pattern
    file.write_text(text)
    return cluster.kubectl("kustomize", directory / MODES[mode])


def without_order(value: Any) -> Any:
    """Return a value whose lists of named items are sorted, because the order of their items has no meaning."""
    if isinstance(value, dict):
        return {key: without_order(item) for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        return sorted(map(without_order, value), key=lambda item: (item["name"], item.get("mountPath", "")))
    return value


def by_name(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    objects = [item for item in yaml.safe_load_all(text) if item]
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    return found


@CHOSEN
def test_the_chart_makes_the_objects_that_kustomize_makes(
    cluster: Cluster, tmp_path: Path, mode: str, components: list[str], settings: dict[str, str]
) -> None:
    ours = by_name(render(cluster, mode, components, settings))
    theirs = by_name(kustomize(cluster, tmp_path, mode, components, settings))
    assert ours.keys() == theirs.keys()
    for name, item in theirs.items():
        assert without_order(ours[name]) == without_order(item)


def test_the_templates_are_those_that_the_manifests_give(tmp_path: Path) -> None:
    """After a change of a manifest, `make chart` writes the templates again."""
    written = tmp_path / "templates"
    written.mkdir()
    write(written, shutil.copytree(REPOSITORY / "k8s", tmp_path / "k8s", symlinks=True))
    for file in sorted(path for path in written.rglob("*") if path.is_file()):
        name = file.relative_to(written)
        assert (REPOSITORY / "k8s/templates" / name).read_text() == file.read_text(), name


def test_the_chart_is_as_helm_wants_it(cluster: Cluster) -> None:
    assert "0 chart(s) failed" in cluster.run("helm", "lint", "--strict", REPOSITORY / "k8s")


def test_values_change_what_a_user_would_edit(cluster: Cluster, tmp_path: Path) -> None:
    """Test the values of docs/helm.md: variables, resources, nodes, the export, and objects left out."""
    values = {
        "components": ["nfs"],
        "training": {
            "env": {"NUM_PASSES": 1000000, "OF_THE_USER": "own"},
            "resources": {"limits": {"memory": "4Gi"}},
            "nodeSelector": {"pool": "fast"},
        },
        "data": {"enabled": False},
        "nfs": {"server": "files.example.com", "path": "/export"},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    found = by_name(cluster.run("helm", "template", "any", REPOSITORY / "k8s", "-f", tmp_path / "values.yaml"))
    assert found["PersistentVolume", "mfs"]["spec"]["nfs"] == values["nfs"]
    pod = found["Job", JOB]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "fast"}
    (trainer,) = pod["containers"]
    assert trainer["resources"] == {"limits": {"memory": "4Gi"}}
    assert [one["value"] for one in trainer["env"] if one["name"] == "NUM_PASSES"] == ["1000000"]
    assert {"name": "OF_THE_USER", "value": "own"} in trainer["env"]
    assert ("Job", "paddle-data") not in found


def test_a_post_renderer_changes_any_field(cluster: Cluster, tmp_path: Path) -> None:
    """Test the files of docs/helm.md with which kustomize changes what Helm has made."""
    files = {block.file: block.text for block in blocks_of(ROOT / "docs/helm.md") if block.file}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    words = ["helm", "template", "any", str(REPOSITORY / "k8s"), "--post-renderer", "./kustomize-it"]
    done = subprocess.run(words, env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert by_name(done.stdout)["Job", JOB]["spec"]["template"]["spec"]["schedulerName"] == "my-scheduler"


WRONG = {
    "a component of another mode": ({"mode": "tasks", "components": ["kueue"]}, "tasks has none of the name kueue"),
    "a setting that no manifest has": ({"settings": {"counts": 5}}, "static has none of the name counts; it has count"),
    "a mode": ({"mode": "dynamic"}, "mode"),
    "a value": ({"nodes": 5}, "nodes"),
}


@pytest.mark.parametrize(("values", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused_by_its_name(
    cluster: Cluster, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    command = ["helm", "template", "any", str(REPOSITORY / "k8s"), "-f", str(tmp_path / "values.yaml")]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and said in done.stderr, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_each_modes_chart_is_accepted_where_pods_must_be_restricted(cluster: Cluster, mode: str) -> None:
    name = f"chart-{mode}"
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found")
    cluster.kubectl("create", "namespace", name)
    for level in ("enforce", "warn"):
        cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{level}=restricted")
    text = render(cluster, mode, ["pod-names", "disruption-budget", "fewer-trainers"] * (mode == "static"), {})
    command = ["kubectl", "-n", name, "create", "--dry-run=server", "--validate=strict", "-f", "-"]
    done = subprocess.run(command, env=cluster.env, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.count("created (server dry run)") == len(by_name(text))
    cluster.kubectl("delete", "namespace", name)


def test_a_chart_trains_where_pods_must_be_restricted(cluster: Cluster, image: Image, tmp_path: Path) -> None:
    """Run the commands of docs/helm.md; only the registry is replaced."""
    project, volume = copy_project(tmp_path / "project"), tmp_path / "volume"
    volume.mkdir()
    give(volume)
    text = script(blocks_of(ROOT / "docs/helm.md"), "cluster")
    repository = image.reference.rpartition(":")[0]
    assert text.count("registry.example.com/team/paddle") == 1
    text = text.replace("registry.example.com/team/paddle", repository)
    with namespace_with_volume(cluster, "chart", volume) as space:
        cluster.kubectl("label", "namespace", "chart", "pod-security.kubernetes.io/enforce=restricted")
        environ = {**cluster.env, "KUBECONFIG": str(own_context(cluster, space, tmp_path))}
        run_script(text, project, environ)
        assert (volume / JOB / "output/pass-00001/done").is_file()
        left = space.kubectl("get", "jobs,roles,services,poddisruptionbudgets", "-o", "name")
        assert not left
