"""The pages: every block of commands is run somewhere, every link leads somewhere, and the index has every page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docpages.blocks import ROOT, blocks, faults, pages, script
from docpages.project import preparation, state_of

RUN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]  # whose commands are all run
MADE_BY_RUNS = {"build", "demo", "jobpath"}  # directories that git does not keep
MOST_COLUMNS = 100
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`([a-z]\w*/[\w./*-]+)(?:::\w+)?`")  # a file, a directory, or a pattern of files
TEST = re.compile(r"`(test_\w+(?:\.py)?)`")  # a test, or a file of tests
LINK = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^()\s]+)\)")


def prose(text: str) -> str:
    """A page without its fenced blocks and code spans, in which a `[a](b)` is no link."""
    return re.sub(r"`[^`\n]+`", "``", BLOCK.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ +(.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists():
            yield f"{page.name}: {target}: no such file"
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{page.name}: {target}: no such heading"


def missing_paths(text: str) -> list[str]:
    """The paths that a page names in the project's directories, and that do not exist."""
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()} - MADE_BY_RUNS
    named = [path for path in PATH.findall(BLOCK.sub("", text)) if path.partition("/")[0] in rooms]
    return [path for path in named if not any(ROOT.glob(path.rstrip("/")))]


def long_lines(text: str) -> list[str]:
    """Lines over MOST_COLUMNS, outside of blocks of code."""
    lines = BLOCK.sub("", text).splitlines()
    return [line for line in lines if len(line) > MOST_COLUMNS and not line.startswith("    ")]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_block_says_what_it_is_and_no_command_hides() -> None:
    assert [fault for page in RUN for fault in faults(name_of(page), page.read_text(encoding="utf-8"))] == []


def test_every_link_leads_somewhere() -> None:
    assert [fault for page in pages() for fault in broken_links(page)] == []


def test_every_path_that_a_page_names_is_there() -> None:
    missing = {name_of(page): missing_paths(page.read_text(encoding="utf-8")) for page in pages()}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def test_lines_are_wrapped_also_in_tables() -> None:
    long = {name_of(page): long_lines(page.read_text(encoding="utf-8")) for page in pages()}
    assert {name: lines for name, lines in long.items() if lines} == {}


def test_every_test_that_a_page_names_is_there() -> None:
    paths = list((ROOT / "tests").rglob("test_*.py"))
    functions = {name for path in paths for name in re.findall(r"^\s*def (test_\w+)", path.read_text(), re.MULTILINE)}
    there = functions | {path.name for path in paths}
    for page in pages():
        assert set(TEST.findall(page.read_text(encoding="utf-8"))) <= there, page.name


def test_the_index_has_every_page_once() -> None:
    listed = re.findall(r"^\| \[[^]]+\]\(([a-z0-9-]+\.md)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "index.md")


def test_every_target_of_make_that_a_page_names_is_there() -> None:
    there = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in RUN:
        named = re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= there, page.name


def test_what_comes_before_a_page_is_known() -> None:
    states = {name_of(page): state_of(page.read_text(encoding="utf-8")) for page in RUN}
    for name, state in states.items():
        try:
            preparation(state)
        except KeyError:
            raise AssertionError(f"{name}: no page leaves the state {state!r}") from None
    assert set(states.values()) > {""}, "no page has a state: the check reads nothing"


# ----- the checks themselves


def test_a_block_that_nobody_runs_is_found() -> None:
    cases = [
        ("```sh\nls\n```\n", ""),
        ("```sh cluster\nkubectl get pods\n```\n", ""),
        ("```sh torch\npython train.py\n```\n", ""),
        ("```python file=a.py\nx = 1\n```\n", ""),
        ("```text\npod-1  Running\n```\n", ""),
        ("text\n\n- item\n    more of it\n", ""),
        ("```\nls\n```\n", "p.md:1: ``` is no kind of block"),
        ("```sh later\nls\n```\n", "p.md:1: ```sh later is no kind of block"),
        ("```text\n$ ls\nkubectl get pods\n```\n", "p.md:1: a command that is not run: kubectl get pods"),
        ("text\n\n    make demo\n", "p.md:3: an indented block; fence it, and say what it is"),
    ]
    found = {text: list(faults("p.md", text)) for text, _ in cases}
    assert found == {text: [fault] * bool(fault) for text, fault in cases}


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"p\.md:3: a block without an end"):
        blocks("p.md", "a\n\n```sh\nls\n")


def test_the_script_has_the_blocks_of_one_kind_in_order_and_stops_at_a_failure() -> None:
    page = "```sh\nfirst\n```\n```sh cluster\nother\n```\n```text file=a\nbody\n```\n```sh\nsecond\n```\n"
    lines = script(blocks("p.md", page), "machine").splitlines()
    assert lines[0] == "set -Eeuo pipefail"
    assert [line for line in lines if line in ("first", "second", "other")] == ["first", "second"]
    assert "other" in script(blocks("p.md", page), "cluster").splitlines()
    assert "first" not in script(blocks("p.md", "```sh\nfirst\n```\n"), "torch").splitlines()


def test_a_long_line_is_found() -> None:
    texts = {
        "prose": "a " * 51,
        "a wide table": f"| {'b' * 48} | {'c' * 49} |",
        "a narrow table": f"| {'b' * 48} | {'c' * 45} |",
        "indented code": "    " + "d" * 100,
        "fenced code": "```text\n" + "e" * 101 + "\n```",
    }
    found = [name for name, text in texts.items() if long_lines(f"first\n{text}\nlast\n")]
    assert found == ["prose", "a wide table"]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    page.write_text("# A: b's `c`\n[a](p.md#a-bs-c) [b](q.md) [c](#nothing) `[d](e)`\n")
    assert list(broken_links(page)) == ["p.md: q.md: no such file", "p.md: #nothing: no such heading"]


def test_a_path_that_is_not_there_is_found() -> None:
    text = "`docs/index.md`, `tests/lint/docs/`, `paddle_base/kernels/*.c`, `docs/gone.md`, `paddle_base/kernels/*.f`"
    assert missing_paths(text) == ["docs/gone.md", "paddle_base/kernels/*.f"]


def test_what_ci_runs_is_what_the_page_says() -> None:
    assert list(faults("page", "```sh ci\nmake test    # all of them\n```\n")) == []
    assert list(faults("page", "```sh ci\nmake tset\n```\n")) == ["page:1: .ci/run has no line 'make tset'"]
