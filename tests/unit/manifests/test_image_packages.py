"""The packages of the image: what the programs need, at the versions with which the tests run, and each by a digest."""

import re
from importlib.metadata import requires
from pathlib import Path

from lock_image import LOCK, PYTHONS, read_required
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def lines(path: Path) -> list[str]:
    text = path.read_text().replace(" \\\n    ", " ")
    return [line for line in text.splitlines() if not line.startswith("#")]


def locked() -> dict[str, str]:
    """Return the versions of the packages of the image."""
    entries = [ENTRY.fullmatch(line) for line in lines(LOCK)]
    assert all(entries)
    return {entry[1]: entry[2] for entry in entries if entry}


def pinned() -> dict[str, str]:
    """Return the versions with which the tests run."""
    pairs = (line.split("==") for line in lines(ROOT / "requirements/constraints.txt"))
    return {canonicalize_name(name): version for name, version in pairs}


def needed(text: str, python: str) -> set[str]:
    """Return the names of a requirement, and of all that it requires on a Python."""
    names, waiting = set(), [(Requirement(text), "")]
    while waiting:
        requirement, extra = waiting.pop()
        environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        if name in names and not requirement.extras:
            continue
        names.add(name)
        deeper = [Requirement(one) for one in requires(name) or ()]
        waiting += [(one, extra) for one in deeper for extra in ("", *requirement.extras)]
    return names


def test_the_image_has_all_that_its_programs_require_and_no_more() -> None:
    for python in PYTHONS:
        assert set().union(*(needed(text, python) for text in read_required())) == locked().keys()


def test_the_versions_are_those_with_which_the_tests_run() -> None:
    assert locked().items() <= pinned().items()


def test_the_versions_are_those_that_the_project_accepts() -> None:
    versions = locked()
    for requirement in map(Requirement, read_required()):
        assert versions[requirement.name] in requirement.specifier


def test_setuptools_which_builds_the_project_is_among_them() -> None:
    assert "setuptools" in locked()
