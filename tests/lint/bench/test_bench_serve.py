"""bench/serve.py: three services answer its clients."""

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


def test_the_services_answer_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import serve

    monkeypatch.setattr(serve, "PAGE_S", -0.1)  # no wait for a new page of metrics
    serve.write_model(tmp_path)
    rows = serve.bench(tmp_path, 2, rounds=1, seconds=0.1)
    assert [row.split(" | ")[1] for row in rows] == list(serve.CONTESTANTS)
