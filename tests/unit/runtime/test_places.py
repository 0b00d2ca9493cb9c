"""A child of a program has its variables, and must not take its place."""

from __future__ import annotations

import os

from paddle_base.runtime.health.places import HOLDER, find_owner, mark_place, name_process, take_place

NAMES = ("PLACE", "OUTPUT")


def test_a_child_does_not_take_the_place_of_a_parent_that_runs() -> None:
    """A `paddle train` that a data provider started wrote into the records of its trainer, and took its name."""
    environ = {"PLACE": "1", HOLDER: name_process(os.getppid())}
    assert take_place(environ, NAMES) == str(os.getppid())
    assert "PLACE" not in environ


def test_the_first_process_takes_it_and_a_later_one_after_its_end() -> None:
    environ = {"PLACE": "1"}
    for holder in ("", f"{os.getppid()}.1", name_process(), "x"):
        environ[HOLDER] = holder
        assert take_place(environ, NAMES) == ""
        assert environ == {"PLACE": "1", HOLDER: name_process()}


def test_a_program_without_a_place_marks_none() -> None:
    environ = {"OUTPUT": ""}
    assert take_place(environ, NAMES) == ""
    assert environ == {"OUTPUT": ""}


def test_a_mark_names_a_running_process_and_its_place() -> None:
    parent = name_process(os.getppid())
    assert find_owner(f"{parent} pod-1", "pod-1") == str(os.getppid())
    for mark in (mark_place("pod-1"), f"{parent} pod-2", f"{os.getppid()}.1 pod-1", "", "x y", f"{'9' * 5000}.1 pod-1"):
        assert find_owner(mark, "pod-1") == ""
