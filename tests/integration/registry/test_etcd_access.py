"""An etcd that asks for TLS, a client certificate and a user, as docs/elastic.md says that one should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_process import SecuredEtcd, require_etcd

from master.store.etcd import EtcdStore
from registry.choice import open_registry
from registry.interface import Entry
from runtime.errors import ConfigError, PeerUnreachableError

TTL = 5.0


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
