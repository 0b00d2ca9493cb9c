"""`each` of tests/each.py: every case runs, one that fails is named, and none sees what another one has left."""

import os

import pytest
from each import each

NAMED = [(1, 1), (2, 3), (4, 4), (5, 6)]


def test_every_case_runs_and_those_that_fail_are_named():
    seen = []

    @each(("a", "b"), NAMED, ids=["one", "two", "four", "five"])
    def check(a, b):
        seen.append(a)
        assert a == b

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed: two; five") as caught:
        check()
    assert seen == [1, 2, 4, 5]
    assert [one.__notes__ for one in caught.value.exceptions] == [["in the case two"], ["in the case five"]]


def test_an_error_that_is_awaited_and_does_not_come_fails_its_case():
    @each("text", ["1", "x"])
    def check(text):
        with pytest.raises(ValueError):
            int(text)

    with pytest.raises(ExceptionGroup, match="1 of 2 cases failed: '1'"):
        check()


def test_cases_of_two_lists_are_all_pairs():
    seen = []

    @each("a", "xy")
    @each("b", [1, 2])
    def check(a, b):
        seen.append((a, b))

    check()
    assert seen == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]


def test_a_list_without_a_case_is_an_error():
    with pytest.raises(AssertionError, match="without a case"):
        each("a", [])


@each("name", ["a", "b"])
def test_a_case_has_a_directory_variables_and_output_of_its_own(tmp_path, monkeypatch, capsys, name):
    assert list(tmp_path.iterdir()) == [] and "OF_ANOTHER_CASE" not in os.environ
    assert capsys.readouterr().out == ""
    (tmp_path / name).touch()
    monkeypatch.setenv("OF_ANOTHER_CASE", name)
    print(name)
