"""Proofs of requests and answers: nothing recorded, reordered too far, reflected or of another job is taken."""

from __future__ import annotations

import pytest

from paddle_cluster.elastic.keyvalue import freshness
from paddle_cluster.elastic.keyvalue.freshness import WINDOW, Checker, Signer
from paddle_cluster.elastic.keyvalue.signature import HEADER, RequestProof

SECRET = "a secret"


def joined() -> tuple[Signer, Checker]:
    """A client that knows the epoch of a server."""
    signer, checker = Signer(SECRET), Checker(SECRET)
    first = signer.sign("GET", "/a/b", b"")
    assert not checker.is_fresh(first)
    assert signer.is_answered(first, checker.sign_answer(first, ["428"], b""), ["428"], b"")
    return signer, checker


def read(checker: Checker, signer: Signer, proof: RequestProof) -> RequestProof | None:
    return checker.read(signer.header(proof)[HEADER], proof.method, proof.path)


def test_a_request_is_taken_once() -> None:
    signer, checker = joined()
    proof = signer.sign("PUT", "/a/b?c=1", b"body")
    assert read(checker, signer, proof) == proof
    assert [checker.is_fresh(proof) for _ in range(3)] == [True, False, False]


def test_requests_of_several_threads_may_overtake_each_other() -> None:
    signer, checker = joined()
    proofs = [signer.sign("GET", "/a/b", b"") for _ in range(WINDOW + 2)]
    assert checker.is_fresh(proofs[9]) and checker.is_fresh(proofs[3]) and checker.is_fresh(proofs[-1])
    assert not any(checker.is_fresh(proofs[number]) for number in (3, 9, -1))
    assert checker.is_fresh(proofs[10])
    assert not checker.is_fresh(proofs[0])  # too late: that it has not been seen is not known


@pytest.mark.parametrize("field", ["epoch", "sender", "number", "digest", "method", "path"])
def test_every_field_is_signed(field: str) -> None:
    signer, checker = joined()
    proof = signer.sign("GET", "/a/b", b"")
    other = {
        "epoch": "f" * 32,
        "sender": "f" * 32,
        "number": 10**6,
        "digest": "f" * 64,
        "method": "PUT",
        "path": "/a/c",
    }
    forged = proof._replace(**{field: other[field]})
    mac = signer.header(proof)[HEADER].rpartition(".")[2]
    text = f"{forged.epoch}.{forged.sender}.{forged.number}.{forged.digest}.{mac}"
    assert checker.read(text, forged.method, forged.path) is None


def test_a_request_to_another_server_or_of_an_earlier_job_is_not_fresh() -> None:
    signer, _ = joined()
    proof = signer.sign("PUT", "/heartbeat/h:0", b"{}")
    another = Checker(SECRET)
    assert read(another, signer, proof) == proof
    assert not another.is_fresh(proof)


def test_an_answer_belongs_to_one_request_and_is_no_request() -> None:
    signer, checker = joined()
    first, second = signer.sign("GET", "/a/b", b""), signer.sign("GET", "/a/b", b"")
    answer = checker.sign_answer(first, ["200"], b"value")
    assert signer.is_answered(first, answer, ["200"], b"value")
    assert not signer.is_answered(second, answer, ["200"], b"value")
    assert not signer.is_answered(first, answer, ["404"], b"value")
    assert not signer.is_answered(first, answer, ["200"], b"another")
    assert not signer.is_answered(first, signer.header(first)[HEADER], ["200"], b"value")
    assert checker.read(answer, "GET", "/a/b") is None


def test_an_answer_without_the_secret_changes_no_epoch() -> None:
    signer, checker = joined()
    proof = signer.sign("GET", "/a/b", b"")
    for answer in ("", f"{'f' * 32}.{'0' * 64}", Checker("another").sign_answer(proof, ["428"], b"")):
        assert not signer.is_answered(proof, answer, ["428"], b"")
    assert checker.is_fresh(signer.sign("GET", "/a/b", b""))


def test_what_a_server_forgets_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many senders a new epoch begins: requests of those that are forgotten are of the old one."""
    monkeypatch.setattr(freshness, "MOST_SENDERS", 2)
    signer, checker = joined()
    recorded = signer.sign("PUT", "/a/b", b"")
    assert checker.is_fresh(recorded)
    others = [Signer(SECRET) for _ in range(2)]
    for other in others:
        first = other.sign("GET", "/a/b", b"")
        assert other.is_answered(first, checker.sign_answer(first, ["428"], b""), ["428"], b"")
    assert checker.is_fresh(others[0].sign("GET", "/a/b", b""))
    assert not checker.is_fresh(others[1].sign("GET", "/a/b", b""))
    assert not checker.is_fresh(recorded)


@pytest.mark.parametrize("text", ["", "x", "0" * 500, f"{'0' * 32}.{'0' * 32}.-1.{'0' * 64}.{'0' * 64}"])
def test_what_is_no_proof_is_none(text: str) -> None:
    assert Checker(SECRET).read(text, "GET", "/a/b") is None
