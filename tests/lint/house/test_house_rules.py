"""The bounds that `make lint` checks: each rule finds what breaks it, and nothing where a bound is just kept."""

from pathlib import Path

import dead_code
import house
from house import Finding, find_all, judge


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def lines(count: int) -> str:
    return "    x = 1\n" * count


def names(count: int) -> str:
    return ", ".join(f"a{number}" for number in range(count))


def method(count: int) -> str:
    return "class A:\n    def f(self):\n" + "".join(f"        self.a{number} = 1\n" for number in range(count))


def files(count: int) -> dict[str, str]:
    return {"trainer/__init__.py": ""} | {f"trainer/m{number}.py": "" for number in range(count)}


CASES: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, str]]] = {
    "a file": (
        {"trainer/a.py": "\n" * 601},
        {"trainer/a.py": "\n" * 600},
        ("file", "trainer/a.py"),
    ),
    "a class": (
        {"trainer/a.py": "class A:\n" + lines(300)},
        {"trainer/a.py": "class A:\n" + lines(299)},
        ("class", "trainer/a.py:A"),
    ),
    "a function": (
        {"trainer/a.py": "def f():\n" + lines(60)},
        {"trainer/a.py": "def f():\n" + lines(59)},
        ("function", "trainer/a.py:f"),
    ),
    "attributes": (
        {"trainer/a.py": method(13)},
        {"trainer/a.py": method(12) + "        self.a1 = 2\n        self.b.c = other.d = 3\n"},
        ("attributes", "trainer/a.py:A"),
    ),
    "parameters": (
        {"trainer/a.py": f"def f({names(4)}, *, b, c, d, e): ...\n"},
        {"trainer/a.py": f"class A:\n    def f(self, {names(7)}): ...\n"},
        ("parameters", "trainer/a.py:f"),
    ),
    "parameters of an inner function": (
        {"trainer/a.py": f"class A:\n    if True:\n        def f(self):\n            def g({names(8)}): ...\n"},
        {"trainer/a.py": f"def f(*arguments, **more):\n    def g({names(7)}): ...\n"},
        ("parameters", "trainer/a.py:A.f.g"),
    ),
    "files of a folder": (files(21), files(20), ("folder", "trainer")),
    "a name of two classes": (
        {"trainer/a.py": "class A: ...\n", "trainer/b.py": "def f():\n    class A: ...\n"},
        {"trainer/a.py": "class A: ...\n", "trainer/b.py": "A = 1\n", "pserver/c.py": "class A: ...\n"},
        ("class name", "A"),
    ),
    "a name of two files of tests": (
        {"tests/unit/a/test_a.py": "", "tests/integration/b/test_a.py": ""},
        {"tests/unit/a/conftest.py": "", "tests/unit/b/conftest.py": "", "tests/unit/b/test_b.py": ""},
        ("test name", "test_a.py"),
    ),
    "an import inside a function": (
        {"start_paddle.py": "def f():\n    if True:\n        import os\n"},
        {"start_paddle.py": "if True:\n    import os\n"},
        ("late import", "start_paddle.py:f"),
    ),
    "input in a module that says it does none": (
        {"trainer/a.py": '"""Sums. No I/O."""\nimport os.path\n'},
        {"trainer/a.py": '"""Sums."""\nimport os\n', "trainer/b.py": '"""Sums. No I/O."""\nimport math\n'},
        ("I/O", "trainer/a.py"),
    ),
    "input in a folder that says it does none": (
        {"trainer/__init__.py": '"""Sums. No I/O."""\n', "trainer/a.py": "from socket import socket\n"},
        {"trainer/__init__.py": '"""Sums. No I/O."""\n', "trainer/b/a.py": "from socket import socket\n"},
        ("I/O", "trainer/a.py"),
    ),
    "a circle": (
        {"trainer/a.py": "import trainer.b\n", "trainer/b.py": "from trainer.a import f\n"},
        {"trainer/a.py": "import trainer.b\n", "trainer/b.py": "import os\n"},
        ("circle", "trainer.a trainer.b"),
    ),
    "a circle by a package, for types only": (
        {
            "trainer/__init__.py": "",
            "trainer/a.py": "if TYPE_CHECKING:\n    from trainer import b\n",
            "trainer/b.py": "from trainer import c\n",
            "trainer/c.py": "def f():\n    from trainer import a\n",
        },
        {
            "trainer/__init__.py": "",
            "trainer/a.py": "from trainer import b\n",
            "trainer/b.py": "from trainer import x\n",
        },
        ("circle", "trainer.a trainer.b trainer.c"),
    ),
}


def test_a_rule_finds_what_breaks_it_and_only_that(tmp_path):
    for name, (broken, kept, expected) in CASES.items():
        assert expected in [one[:2] for one in find_all(write(tmp_path / name / "broken", broken))], name
        assert expected[0] not in [one.rule for one in find_all(write(tmp_path / name / "kept", kept))], name


FOUND = [Finding("parameters", "trainer/a.py:f", "8 parameters"), Finding("file", "trainer/a.py", "601 lines")]


def test_what_no_exception_names_is_told():
    assert list(judge(FOUND, {})) == [
        "parameters | trainer/a.py:f | 8 parameters",
        "file | trainer/a.py | 601 lines",
    ]


def test_an_exception_allows_what_it_names():
    assert list(judge(FOUND, {("parameters", "trainer/*"): "why", ("file", "trainer/a.py"): "why"})) == []


def test_an_exception_that_nothing_needs_is_told():
    found = list(judge(FOUND, {("parameters", "trainer/*"): "", ("file", "*"): "", ("class", "trainer/*"): ""}))
    assert found == ["no exception any more: class | trainer/*"]


def test_there_are_not_too_many_exceptions():
    named = {("file", f"trainer/{'?' * number}.py"): "why" for number in range(16)}
    assert list(judge(FOUND, named))[-1] == "16 exceptions, at most 15"


def test_the_status_says_whether_anything_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(house, "ROOT", write(tmp_path, {"trainer/a.py": "\n" * 601}))
    monkeypatch.setattr(house, "EXCEPTIONS", {})
    assert house.main() == 1
    assert capsys.readouterr().out == "file | trainer/a.py | 601 lines\n"
    write(tmp_path, {"trainer/a.py": ""})
    assert house.main() == 0


def test_code_that_only_a_test_or_nothing_uses_is_named_but_no_word_of_the_config_language(tmp_path):
    sources = {
        "bench/run.py": "from paddle_base.runtime.used import help_bench\nhelp_bench()\n",
        "paddle_base/runtime/used.py": "def help_bench(): pass\ndef dead(): pass\n",
        "tests/test_used.py": "from paddle_base.runtime.used import dead\ndead()\n",
        "trainer/config/v1/layer_types.py": "CLASSES = 'dense.fc.FcLayer'\n",
        "trainer/config/language.py": "@helper('layers')\ndef fc_layer(): pass\ndef forgotten(): pass\n",
        "trainer/layers/fc.py": "class FcLayer: pass\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [(one.path, one.name) for one in dead_code.find_unused(tmp_path)]
    assert ("paddle_base/runtime/used.py", "dead") in found and ("trainer/config/language.py", "forgotten") in found
    assert not {"help_bench", "fc_layer", "FcLayer"} & {name for _, name in found}
