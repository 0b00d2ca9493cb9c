"""The autoscaler's service account on a real API server: the rights of k8s/tasks/autoscaler, and a token."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
NAME = "paddle-autoscaler"  # of the account and of its namespace
Item = dict[str, Any]


def edited(directory: Path, namespaces: Sequence[str] = ("default",), *, cluster_wide: bool = False) -> Path:
    """A copy of k8s/tasks/autoscaler, edited for these namespaces as its comments say."""
    made = Path(shutil.copytree(ROOT / "k8s/tasks/autoscaler", directory / "autoscaler"))
    for name in namespaces:
        if name != "default":
            file = Path(shutil.copytree(made / "namespaces/default", made / "namespaces" / name)) / "kustomization.yaml"
            file.write_text(file.read_text().replace("namespace: default", f"namespace: {name}"))
    file = made / "kustomization.yaml"
    lines = "".join(f"  - namespaces/{name}\n" for name in namespaces)
    text = file.read_text().replace("  - namespaces/default\n", lines)
    text = text.replace("NAMESPACES=default", f"NAMESPACES={','.join(namespaces)}")
    file.write_text(
        text.replace("#  - components/cluster-wide", "  - components/cluster-wide") if cluster_wide else text
    )
    return made


def manifests(environ: Mapping[str, str], namespaces: Sequence[str], *, cluster_wide: bool) -> list[Item]:
    """What `kubectl create -k` creates of them, but for the Deployment."""
    with tempfile.TemporaryDirectory() as directory:
        made = edited(Path(directory), namespaces, cluster_wide=cluster_wide)
        command = ["kubectl", "kustomize", str(made)]
        said = subprocess.run(command, env=environ, capture_output=True, check=True, timeout=60).stdout
    return [one for one in yaml.safe_load_all(said) if one["kind"] != "Deployment"]


def create_account(
    directory: Path,
    environ: Mapping[str, str] = os.environ,
    change: Callable[[Item], None] | None = None,
    *,
    namespaces: Sequence[str] = (),
) -> dict[str, str]:
    """Create it, changed by `change`, and return the environment in which `paddle autoscaler` is that account.

    directory: is filled with what a pod finds in it: token, ca.crt, namespace.  namespaces: none means cluster-wide.
    """
    items = manifests(environ, namespaces or ["default"], cluster_wide=not namespaces)
    for item in items:
        if change:
            change(item)
    apply, given = ["kubectl", "apply", "-f", "-"], yaml.safe_dump_all(items).encode()
    subprocess.run(apply, input=given, env=environ, check=True, stdout=subprocess.DEVNULL, timeout=60)
    ask = ["kubectl", "-n", NAME, "create", "token", NAME, "--duration=3h"]
    done = subprocess.run(ask, env=environ, capture_output=True, check=True, text=True, timeout=60)
    cluster = yaml.safe_load(Path(environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]
    directory.mkdir(exist_ok=True)
    (directory / "token").touch(0o600)
    (directory / "token").write_text(done.stdout)
    (directory / "ca.crt").write_text(Path(cluster["certificate-authority"]).read_text())
    (directory / "namespace").write_text(NAME)
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    where = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT_HTTPS": port}
    return {**environ, **where, "SERVICE_ACCOUNT_DIR": str(directory)}
