"""docs/architecture.md and docs/walks.md: every name is a link to the file that defines it, and every room is there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docpages.blocks import ROOT

PAGE = ROOT / "docs/architecture.md"
WALKS = ROOT / "docs/walks.md"
LINK = re.compile(r"\[`([^`]+)`\]\(([^()\s]+)\)")  # [`Server.run`](../pserver/server/event_loop.py)
FILE = re.compile(r"`([\w./-]+\.(?:py|sh|yaml|toml|md))`")  # a file that is named without a link
ROOMS_INSIDE = (  # packages whose rooms the page lists, too
    "paddle_base", "paddle_base/messages", "paddle_cluster", "paddle_cluster/elastic", "paddle_cluster/launcher",
    "paddle_cluster/master", "pserver", "trainer",
)  # fmt: skip


def walk_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (prefix + one.id for one in targets if isinstance(one, ast.Name))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from walk_definitions(node.body, f"{prefix}{node.name}.")


@cache
def definitions_of(path: Path) -> frozenset[str]:
    """The functions, classes, constants and attributes of a module; those of a class as `Class.name`."""
    return frozenset(walk_definitions(ast.parse(path.read_text(encoding="utf-8")).body))


def files_that_define(name: str) -> list[str]:
    rooms = [path.parent for path in ROOT.glob("*/__init__.py")]
    paths = [*ROOT.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]
    return sorted(str(path.relative_to(ROOT)) for path in paths if name in definitions_of(path))


def fault_of(name: str, target: str) -> str:
    """What is wrong with a link; "" if it is right."""
    path = (PAGE.parent / target).resolve()
    if not path.exists():
        return f"{name}: there is no {target}; it is defined in {files_that_define(name)}"
    if "/" in name or name.endswith((".py", ".sh", ".yaml")):
        return "" if path == (ROOT / name).resolve() else f"{name}: the link leads to {target}"
    if path.suffix == ".py":
        is_there = name in definitions_of(path)
        return "" if is_there else f"{name} is not in {target}; it is defined in {files_that_define(name)}"
    is_there = re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8"))
    return "" if is_there else f"{name} is not in {target}"


def list_faults(text: str) -> list[str]:
    """What is wrong with the links of a page, and with the files that it names without a link."""
    links = [fault_of(name, target) for name, target in LINK.findall(text)]
    files = [f"there is no {name}" for name in FILE.findall(LINK.sub("", text)) if not (ROOT / name).exists()]
    return list(filter(None, links + files))


def test_every_name_is_defined_where_its_link_leads() -> None:
    faults = {page.name: list_faults(page.read_text(encoding="utf-8")) for page in (PAGE, WALKS)}
    assert faults == {PAGE.name: [], WALKS.name: []}


def test_every_room_is_on_the_page() -> None:
    inside = [path for room in ROOMS_INSIDE for path in ROOT.glob(f"{room}/*/__init__.py")]
    rooms = {f"{path.parent.relative_to(ROOT)}/" for path in [*ROOT.glob("*/__init__.py"), *inside]}
    linked = {name for name, _ in LINK.findall(PAGE.read_text(encoding="utf-8"))}
    assert rooms - linked == set()


def test_a_name_that_is_elsewhere_is_found() -> None:
    cases = [
        ("[`Server.bind`](../pserver/server/event_loop.py)", ""),
        ("[`VARIABLES`](../paddle_cluster/launcher/settings.py)", ""),
        ("[`main`](../start.sh) of [`start.sh`](../start.sh)", ""),
        ("[`pserver/wire/`](../pserver/wire/)", ""),
        ("[`Server.fly`](../pserver/server/event_loop.py)", "Server.fly is not in ../pserver/server/event_loop.py; "),
        ("[`Server`](../pserver/flags.py)", "it is defined in ['pserver/server/event_loop.py']"),
        ("[`Server`](../pserver/gone.py)", "Server: there is no ../pserver/gone.py; "),
        ("[`pserver/wire/`](../pserver/store/)", "pserver/wire/: the link leads to ../pserver/store/"),
        ("[`fly_away`](../start.sh)", "fly_away is not in ../start.sh"),
        ("as in `pserver/gone.py`", "there is no pserver/gone.py"),
    ]
    for text, fault in cases:
        found = list_faults(text)
        assert len(found) == bool(fault) and fault in "".join(found), text
