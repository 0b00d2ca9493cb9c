"""The keeper of claims: which errors of a renewal end a claim, and when."""

from pathlib import Path

import pytest
from waiting import until

from paddle_base.registry import keeping
from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.runtime import glog
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PaddleError, PeerUnreachableError, VolumeError

TTL = 10.0


class ScriptedClaim:
    """A claim, and the clock of the keeper; `trouble` is what a renewal raises."""

    key, token, ttl = "ps/3", 7, TTL

    def __init__(self) -> None:
        self.now, self.valid_until = 100.0, 100.0 + TTL
        self.trouble: Exception | None = None
        self.lost: list[PaddleError] = []

    def monotonic(self) -> float:
        return self.now

    def renew(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.valid_until = self.now + TTL

    def update(self, value: str) -> None: ...

    def put(self, key: str, value: str) -> None: ...

    def release(self) -> None: ...


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> ScriptedClaim:
    made = ScriptedClaim()
    monkeypatch.setattr(keeping, "time", made)
    return made


@pytest.mark.parametrize("kind", [PeerUnreachableError, VolumeError])
@pytest.mark.parametrize("patience", [0.0, 600.0])
def test_a_registry_that_is_away_ends_a_claim_only_after_its_end_and_the_patience(
    claim: ScriptedClaim, kind: type[PaddleError], patience: float
) -> None:
    keeper = ClaimKeeper(claim, claim.lost.append, patience=patience)
    claim.trouble = kind("no etcd answers")
    for _ in range(3):  # it comes back in time
        claim.now = claim.valid_until + patience
        assert keeper.renew() and not claim.lost
        claim.trouble = None
        assert keeper.renew()
        claim.trouble = kind("no etcd answers")
    claim.now = claim.valid_until + patience + 1.0
    assert not keeper.renew()
    (lost,) = claim.lost
    assert isinstance(lost, LeaseLostError)
    assert str(lost) == f"the claim of ps/3 could not be renewed for {TTL + patience + 1:.0f} s: no etcd answers"


@pytest.mark.parametrize("trouble", [LeaseLostError("another one has it"), DamagedError("100001 files")])
def test_another_error_ends_a_claim_at_once(claim: ScriptedClaim, trouble: PaddleError) -> None:
    """The driver of elastic workers only warned when the registry was damaged, again at every renewal."""
    claim.trouble = trouble
    assert not ClaimKeeper(claim, claim.lost.append).renew()
    assert claim.lost == [trouble]


def test_an_error_that_nobody_has_foreseen_ends_the_program_as_in_each_service_thread(claim: ScriptedClaim) -> None:
    claim.trouble = ZeroDivisionError("what?")
    with pytest.raises(ZeroDivisionError):
        ClaimKeeper(claim, claim.lost.append).renew()
    assert not claim.lost


def test_what_is_looked_at_after_a_renewal_may_end_the_claim(claim: ScriptedClaim) -> None:
    damage = DamagedError("job/end is no text")

    def look() -> None:
        raise damage

    assert not ClaimKeeper(claim, claim.lost.append, renewed=look).renew()
    assert claim.lost == [damage] and claim.valid_until == claim.now + TTL


def test_a_registry_that_is_away_is_one_line_in_half_a_minute(
    claim: ScriptedClaim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver, and the trainer with the lock of the first values, wrote a line at every renewal."""
    lines: list[str] = []
    monkeypatch.setattr(glog, "warning", lines.append)
    claim.trouble = VolumeError("--store_dir is away")
    keeper = ClaimKeeper(claim, claim.lost.append, patience=3600.0, what="the lease of the driver")
    for _ in range(61):
        keeper.renew()
        claim.now += 1.0
    assert lines == ["the lease of the driver is not renewed yet: --store_dir is away"] * 3


def test_a_claim_is_renewed_while_the_block_runs_and_not_after(tmp_path: Path) -> None:
    lost: list[PaddleError] = []
    registry = DirectoryRegistry(tmp_path, 0.3)
    claim = registry.claim("ps/0", "")
    assert claim is not None
    first = claim.valid_until
    with ClaimKeeper(claim, lost.append):
        until(lambda: lost or claim.valid_until >= first + 0.3, "a renewal after the first end of the claim")
    last = claim.valid_until
    registry.wait("ps/", registry.read("ps/"), 0.3)
    assert claim.valid_until == last and not lost
