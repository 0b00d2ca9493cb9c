"""`each` runs all cases of a test in one item, because an item of pytest costs more than a case of a pure function.

It takes the arguments of `pytest.mark.parametrize`. All cases run, also after one that fails; the failure names them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | tuple[str, ...] | list[str], cases: Iterable[Any], ids: Any = None) -> Callable[[Test], Test]:
    """Return a decorator that runs all cases in one item, each with its own `tmp_path`, `monkeypatch` and output.

    Args: ids: the names of the cases, or a function that makes the name of a value, as for `parametrize`.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    known = list(cases)
    rows = [dict(zip(keys, [case] if len(keys) == 1 else case, strict=True)) for case in known]
    assert rows, "a test without a case checks nothing"
    if callable(ids):
        labels = ["-".join(str(ids(value)) for value in row.values()) for row in rows]
    else:
        labels = list(map(str, ids)) if ids is not None else [", ".join(map(_shorten, row.values())) for row in rows]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            failures = []
            for number, (label, row) in enumerate(zip(labels, rows, strict=True)):
                own = dict(given)
                if "capsys" in own:
                    own["capsys"].readouterr()  # what the case before has left
                if "tmp_path" in own:
                    own["tmp_path"] = _make_directory(own["tmp_path"] / f"case{number}")
                try:
                    if "monkeypatch" in own:
                        with pytest.MonkeyPatch.context() as own["monkeypatch"]:
                            test(**own, **row)
                    else:
                        test(**own, **row)
                except (Exception, pytest.fail.Exception) as exc:
                    why = (
                        exc
                        if isinstance(exc, Exception)
                        else AssertionError(str(exc)).with_traceback(exc.__traceback__)
                    )
                    why.add_note(f"in the case {label}")
                    failures.append((label, why))
            if failures:
                text = f"{len(failures)} of {len(rows)} cases failed: {'; '.join(label for label, _ in failures)}"
                raise ExceptionGroup(text, [exc for _, exc in failures])

        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[one for name, one in signature.parameters.items() if name not in keys]
        )
        return run

    return decorate


def _make_directory(path: Path) -> Path:
    path.mkdir()
    return path


def _shorten(value: object) -> str:
    text = repr(value[:60]) if isinstance(value, str | bytes) else getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}"
