"""The autoscaler's service account on a real API server: the rights of k8s/elastic/autoscaler, and a token."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
NAME = "paddle-autoscaler"  # of the account and of its namespace
Item = dict[str, Any]


def manifests(environ: Mapping[str, str]) -> list[Item]:
    """What `kubectl create -k k8s/elastic/autoscaler` creates, but for the Deployment."""
    command = ["kubectl", "kustomize", str(ROOT / "k8s/elastic/autoscaler")]
    made = subprocess.run(command, env=environ, capture_output=True, check=True, timeout=60)
    return [one for one in yaml.safe_load_all(made.stdout) if one["kind"] != "Deployment"]


def create_account(
    directory: Path, environ: Mapping[str, str] = os.environ, change: Callable[[Item], None] | None = None
) -> dict[str, str]:
    """Create it, changed by `change`, and return the environment in which `paddle autoscaler` is that account.

    directory: is filled with what a pod finds in it: token, ca.crt, namespace.
    """
    items = manifests(environ)
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
