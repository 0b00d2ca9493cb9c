"""The launchers that bench/recovery.py measures."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "stale_s, labels", [(0.0, ["now, a usual volume"]), (10.0, ["now, a usual volume", "now, looks up to 10 s old"])]
)
def test_each_launcher_is_measured_once(
    stale_s: float, labels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--stale 0 made one directory twice, and ended with FileExistsError."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import recovery

    starts = recovery.make_launchers({"now": ROOT}, tmp_path, stale_s)
    assert list(starts) == labels and all(path.is_file() for path in starts.values())
    firsts = [(path.parent / "paddle_cluster/launcher/__init__.py").read_text() for path in starts.values()]
    assert ["_read_fresh" in first for first in firsts] == [False, True][: len(labels)]
