"""An etcd that asks for TLS, a client certificate and a user, as docs/tasks.md says that one should."""

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
from ports import free_ports

from paddle_base.registry.choice import open_registry
from paddle_base.registry.etcd_flags import set_variables
from paddle_base.registry.interface import Entry
from paddle_base.runtime.errors import ConfigError, PeerUnreachableError
from paddle_cluster.master.store.etcd import EtcdStore

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
    monkeypatch.setattr("paddle_base.registry.endpoints.FIRST_S", 0.0)
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


# ----- k8s/tasks/make-secrets, and the etcd that k8s/tasks/etcd.yaml starts
@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a directory for each Secret, as the pods mount them."""
    place = tmp_path_factory.mktemp("secrets")
    made = subprocess.run([ROOT / "k8s/tasks/make-secrets"], capture_output=True, check=True, timeout=60).stdout
    for secret in yaml.safe_load_all(made):
        directory = place / secret["metadata"]["name"]
        directory.mkdir()
        for name, content in secret["data"].items():
            (directory / name).write_bytes(base64.b64decode(content))
    return place


def test_no_key_stays_on_the_disk(tmp_path: Path) -> None:
    """With a relative TMPDIR all keys did, with those of the authority."""
    (tmp_path / "some where").mkdir()
    environ = {**os.environ, "TMPDIR": "some where"}
    made = subprocess.run(
        [ROOT / "k8s/tasks/make-secrets"], cwd=tmp_path, env=environ, capture_output=True, check=True, timeout=60
    )
    assert made.stdout and not list((tmp_path / "some where").iterdir())


OLD_OPENSSL = """#!/usr/bin/env bash
# an openssl before 3.0, which adds no identifiers of keys: those of the extension file alone count
for each; do
    if [[ ${before:-} == -extfile ]]; then
        grep -q subjectKeyIdentifier "$each" || echo subjectKeyIdentifier=none >>"$each"
        grep -q authorityKeyIdentifier "$each" || echo authorityKeyIdentifier=none >>"$each"
    fi
    before=$each
done
PATH=${PATH#*:} exec openssl "$@"
"""


def test_a_strict_program_accepts_the_certificates(tmp_path: Path) -> None:
    """Python 3.13 demands identifiers of keys, which an old openssl added only on demand."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "openssl").write_text(OLD_OPENSSL)
    (tmp_path / "bin" / "openssl").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    made = subprocess.run(
        [ROOT / "k8s/tasks/make-secrets"], env=environ, capture_output=True, check=True, timeout=60
    ).stdout
    data = {one["metadata"]["name"]: one["data"] for one in yaml.safe_load_all(made)}
    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(data["paddle-etcd-client"][name]))
    strict = ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt"]
    shown = subprocess.run(strict, capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 0, shown.stderr


class ShippedEtcd(EtcdProcess):
    """An etcd with the certificates and demands of the manifest, on another port."""

    def __init__(self, directory: Path, secrets: Path) -> None:
        objects = yaml.safe_load_all((ROOT / "k8s/tasks/etcd.yaml").read_text())
        (pod,) = (each["spec"]["template"]["spec"] for each in objects if each["kind"] == "StatefulSet")
        env = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
        mounted = {
            name: value.replace("/etc/paddle-etcd", f"{secrets}/paddle-etcd-server") for name, value in env.items()
        }
        self.flags = [
            f"--{name.removeprefix('ETCD_').lower().replace('_', '-')}={value}"
            for name, value in mounted.items()
            if name.endswith(("_FILE", "_CERT_AUTH", "_CN"))
        ]
        self.peer = f"https://127.0.0.1:{free_ports(1)[0]}"
        self.flags += [f"--{name}={self.peer}" for name in ("listen-peer-urls", "initial-advertise-peer-urls")]
        self.flags.append(f"--initial-cluster=default={self.peer}")
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
    monkeypatch.setattr("paddle_base.registry.endpoints.FIRST_S", 0.0)
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


def test_a_member_of_the_shipped_etcd_takes_no_messages_from_a_client(secrets: Path, tmp_path: Path) -> None:
    """The certificate of every trainer opened the port of the members, at which no user is asked for."""
    require_etcd()
    with ShippedEtcd(tmp_path, secrets) as etcd:
        members = requests.Session()
        members.trust_env = False
        server = secrets / "paddle-etcd-server"
        members.verify, members.cert = str(server / "ca.crt"), (str(server / "tls.crt"), str(server / "tls.key"))
        assert members.get(f"{etcd.peer}/members", timeout=10).status_code == 200
        with pytest.raises(requests.ConnectionError):
            etcd.session.get(f"{etcd.peer}/members", timeout=10)
