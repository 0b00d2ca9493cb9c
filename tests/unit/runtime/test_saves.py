"""The saves of a job, for the launcher and the trainer alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from each import each

from paddle_base.runtime import saves
from paddle_base.runtime.saves import DONE, FILES, clean, find_free_run, is_set_aside, list_saves, order_of, set_aside
from paddle_base.runtime.schema import SchemaError


def make_save(path: Path, *, is_complete: bool = True) -> Path:
    path.mkdir(parents=True)
    if is_complete:
        (path / DONE).touch()
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_complete_saves_are_listed_in_the_order_of_training(tmp_path: Path) -> None:
    expected = ["pass-00002-001", "pass-00002-010", "pass-00002", "pass-00003", "pass-100000"]
    for name in (*expected, "pass-00009.damaged", ".pass-00009.writing", "run-1", "pass-9"):
        make_save(tmp_path / name)
    make_save(tmp_path / "pass-00009", is_complete=False)
    assert list_saves(tmp_path) == expected
    assert list_saves(tmp_path / "nowhere") == []
    assert order_of("pass-٠٠٠٠٠") is None, "only the digits of names that programs of this project write"


def test_damaged_saves_get_numbers_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer had no limit, and the launcher did not sync the directory."""
    monkeypatch.setattr(saves, "MOST_DAMAGED", 3)
    place = tmp_path / "pass-00000"
    assert not is_set_aside(place)
    for suffix in (".damaged", ".damaged.2"):
        make_save(place)
        assert set_aside(place) == place.with_name(f"{place.name}{suffix}")
        assert is_set_aside(place)
    make_save(place)
    assert not is_set_aside(place)
    with pytest.raises(OSError, match="too many damaged saves"):
        set_aside(place)
    assert list_saves(tmp_path) == ["pass-00000"]


def test_a_damaged_save_that_another_program_renames_first_is_no_error(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "pass-00000") == tmp_path / "pass-00000.damaged"


def test_of_passes_only_those_that_no_program_has_finished_are_removed(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "state"):
        make_save(folder / "pass-00000")
        make_save(folder / "pass-00001", is_complete=False)  # v0.10 wrote passes without a mark
        make_save(folder / ".pass-00002.writing")
        make_save(folder / ".pass-00003.old")
        make_save(folder / "run-1", is_complete=False)
    clean(tmp_path, is_state=False)
    clean(tmp_path / "state")
    assert names(tmp_path) == ["pass-00000", "pass-00001", "pass-00003", "run-1", "state"]
    assert names(tmp_path / "state") == ["pass-00000", "pass-00003", "run-1"]


def test_the_next_run_is_free_in_all_directories(tmp_path: Path) -> None:
    for name in ("a/run-1", "b/run-2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "run-3").symlink_to("nowhere")
    assert find_free_run([tmp_path / "a", tmp_path / "b"]) == "run-4"


@each("name", ["/etc/passwd", "../w", "parameters/../../w", "", "a\0b", "x" * 5000])
def test_a_file_outside_of_a_checkpoint_is_none_of_its_files(name: str) -> None:
    FILES.check({"parameters/w": 4}, "files")
    with pytest.raises(SchemaError, match="a name in files"):
        FILES.check({name: 4}, "files")
