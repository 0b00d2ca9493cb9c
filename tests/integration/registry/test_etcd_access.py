"""An etcd that asks for TLS, a client certificate and a user, as docs/elastic.md says that one should."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from etcd_process import EtcdProcess, SecuredEtcd, require_etcd

from master.store.etcd import EtcdStore
from registry.choice import open_registry
from registry.etcd_flags import set_variables
from registry.interface import Entry
from runtime.errors import ConfigError, PeerUnreachableError

TTL = 5.0
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredEtcd]:
    require_etcd()
    with SecuredEtcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def environ(secured: SecuredEtcd, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name, value in secured.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("registry.endpoints.FIRST_S", 0.0)
    yield monkeypatch


def test_a_registry_and_a_master_are_let_in(secured: SecuredEtcd, environ: pytest.MonkeyPatch) -> None:
    registry = open_registry([secured.endpoint], None, "job", TTL)
    claim = registry.claim("ps/0", "first")
    assert claim is not None
    assert registry.read("ps/")["ps/0"].value == "first"
    claim.renew()
    leadership = EtcdStore([secured.endpoint], "job", TTL).campaign(lambda: False, print)
    assert leadership is not None
    assert list(leadership.load()) == []
    leadership.commit([("task/1", "1")])
    leadership.resign()
    claim.release()
    registry.close()


def test_a_token_that_etcd_has_forgotten_is_replaced(secured: SecuredEtcd, environ: pytest.MonkeyPatch) -> None:
    registry = open_registry([secured.endpoint], None, "forgotten", TTL)
    registry.put("a", "1")
    secured.stop()
    secured.start()
    assert registry.read("") == {"a": Entry("1", registry.read("")["a"].token)}
    registry.close()


def test_a_flag_comes_before_its_variable(secured: SecuredEtcd, environ: pytest.MonkeyPatch) -> None:
    flags = {name.removeprefix("PADDLE_").lower(): value for name, value in secured.environ.items()}
    for name in secured.environ:
        environ.setenv(name, "/wrong")
    set_variables(flags.__getitem__, os.environ)
    open_registry([secured.endpoint], None, "job", TTL).read("")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"PADDLE_ETCD_CERT": "", "PADDLE_ETCD_KEY": ""}, "no etcd answers"),
        ({"PADDLE_ETCD_CA": ""}, "no etcd answers"),
        ({"PADDLE_ETCD_USER": "nobody"}, "authentication failed, invalid user ID or password"),
        ({"PADDLE_ETCD_USER": "", "PADDLE_ETCD_PASSWORD_FILE": ""}, "user name is empty"),
    ],
    ids=["certificate", "authority", "user", "no user"],
)
def test_who_lacks_a_proof_is_not_let_in(
    secured: SecuredEtcd, environ: pytest.MonkeyPatch, changes: dict[str, str], why: str
) -> None:
    for name, value in changes.items():
        environ.setenv(name, value)
    with pytest.raises(PeerUnreachableError, match=why):
        open_registry([secured.endpoint], None, "job", TTL).read("")


def test_a_password_does_not_go_over_an_open_connection(secured: SecuredEtcd, environ: pytest.MonkeyPatch) -> None:
    open_endpoint = secured.endpoint.replace("https", "http")
    with pytest.raises(ConfigError, match="is not encrypted, and PADDLE_ETCD_CA is set: write https://"):
        open_registry([open_endpoint], None, "job", TTL)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PADDLE_ETCD_KEY", "", "PADDLE_ETCD_CERT is set, and PADDLE_ETCD_KEY is not"),
        ("PADDLE_ETCD_USER", "", "PADDLE_ETCD_PASSWORD_FILE is set, and PADDLE_ETCD_USER is not"),
        ("PADDLE_ETCD_CA", "nowhere", "PADDLE_ETCD_CA names nowhere, which cannot be read: No such file"),
        ("PADDLE_ETCD_PASSWORD_FILE", "empty", "PADDLE_ETCD_PASSWORD_FILE names empty, which holds nothing"),
    ],
)
def test_what_is_missing_is_named(
    secured: SecuredEtcd, environ: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, why: str
) -> None:
    environ.chdir(tmp_path)
    (tmp_path / "empty").touch()
    environ.setenv(name, value)
    with pytest.raises(ConfigError, match=why):
        open_registry([secured.endpoint], None, "job", TTL)


# ----- k8s/elastic/make-secrets, and the etcd that k8s/elastic/etcd.yaml starts
@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a directory for each Secret, as the pods mount them."""
    place = tmp_path_factory.mktemp("secrets")
    made = subprocess.run([ROOT / "k8s/elastic/make-secrets"], capture_output=True, check=True, timeout=60).stdout
    for secret in yaml.safe_load_all(made):
        directory = place / secret["metadata"]["name"]
        directory.mkdir()
        for name, content in secret["data"].items():
            (directory / name).write_bytes(base64.b64decode(content))
    return place


class ShippedEtcd(EtcdProcess):
    """An etcd with the certificates and demands of the manifest, on another port."""

    def __init__(self, directory: Path, secrets: Path) -> None:
        objects = yaml.safe_load_all((ROOT / "k8s/elastic/etcd.yaml").read_text())
        (pod,) = (each["spec"]["template"]["spec"] for each in objects if each["kind"] == "StatefulSet")
        env = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
        mounted = {
            name: value.replace("/etc/paddle-etcd", f"{secrets}/paddle-etcd-server") for name, value in env.items()
        }
        self.flags = [
            f"--{name.removeprefix('ETCD_').lower().replace('_', '-')}={value}"
            for name, value in mounted.items()
            if name.endswith(("_FILE", "_CERT_AUTH"))
        ]
        self.session = requests.Session()
        self.session.trust_env = False
        client = secrets / "paddle-etcd-client"
        self.session.verify, self.session.cert = (
            str(client / "ca.crt"),
            (str(client / "tls.crt"), str(client / "tls.key")),
        )
        super().__init__(directory, "https")


def test_the_shipped_etcd_lets_in_only_who_has_the_secret(
    secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took requests from every pod that reached its port."""
    require_etcd()
    monkeypatch.setattr("registry.endpoints.FIRST_S", 0.0)
    assert sorted(each.name for each in secrets.iterdir()) == [
        "paddle-etcd-client",
        "paddle-etcd-server",
        "paddle-secret",
    ]
    assert len((secrets / "paddle-secret" / "secret").read_text().strip()) == 64
    given = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
    with ShippedEtcd(tmp_path, secrets) as etcd:
        for name, file in given.items():
            monkeypatch.setenv(f"PADDLE_ETCD_{name}", str(secrets / "paddle-etcd-client" / file))
        registry = open_registry([etcd.endpoint], None, "job", TTL)
        registry.put("a", "1")
        assert registry.read("")["a"].value == "1"
        registry.close()
        for name in ("CERT", "KEY"):
            monkeypatch.delenv(f"PADDLE_ETCD_{name}")
        with pytest.raises(PeerUnreachableError, match="no etcd answers"):
            open_registry([etcd.endpoint], None, "job", TTL).read("")
