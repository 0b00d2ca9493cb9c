"""Programs in the syntax of Python 2: converted in memory, with Python 2's results and their own line numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.config.scripts import python2_syntax
from trainer.config.scripts.python2_syntax import compile_program

PROGRAM = """\
# -*- coding: utf-8 -*-
import os, sys
import cPickle as pickle
from itertools import izip
import Queue, urllib2, string
import helper

def half((a, b), c):
    return a / b + c

class Countdown:
    def __init__(self): self.n = 3
    def __iter__(self): return self
    def next(self):
\tself.n -= 1
        if self.n < 0:
            raise StopIteration, "end"
        return self.n

print "half", 7 / 2, half((7, 2), 1),
print
print >>sys.stderr, "error %d" % 0777
try:
    raise ValueError, "bad"
except ValueError, e:
    print `e`
d = {'a': 1, 'b': 2}
print sorted(d.keys())[0], d.has_key('a'), list(izip(range(2), d.items()))
numbers = range(5)
numbers[0] = 9
n = 7
n /= 2
print numbers, n, 3 <> 4, map(lambda (k, v): v, d.items()), 1 / 2.0
print list(Countdown()), unichr(65), ur"\\d", string.letters[:2], string.join(["a", "b"])
exec "y = 5"
print y, helper.half(9)
with open('saved.pkl', 'w') as out:
    pickle.dump([1, 'x'], out)
print pickle.load(open('saved.pkl', 'r'))
print sys.argv[1:], __name__
def fail():
    return {}['absent']
fail()
"""
PRINTED = """\
half 3 4
ValueError('bad')
a True [(0, ('a', 1)), (1, ('b', 2))]
[9, 1, 2, 3, 4] 3 True [1, 2] 0.5
[2, 1, 0] A \\d ab a b
in helper
5 4
[1, 'x']
['one', '-v'] __main__
"""


def run(directory, *arguments, **environ):
    command = [sys.executable, "-m", "paddle", "run", *arguments]
    root = Path(python2_syntax.__file__).parents[3]
    env = {"PYTHONPATH": str(root), **environ}
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60)


def test_a_program_of_python_2_prints_what_python_2_printed(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text('def half(n):\n    print "in helper"\n    return n / 2\n')
    ended = run(tmp_path, "train.py", "one", "-v")
    assert ended.stdout.replace("half 3 4 \n", "half 3 4\n") == PRINTED
    assert ended.stderr.splitlines() == [
        "error 511",
        "Traceback (most recent call last):",
        '  File "train.py", line 43, in <module>',
        "    fail()",
        '  File "train.py", line 42, in fail',
        "    return {}['absent']",
        "           ~~^^^^^^^^^^",
        "KeyError: 'absent'",
    ]
    assert ended.returncode == 1


def test_a_module_of_the_program_comes_before_one_of_python_2s_library(tmp_path):
    """`commands` of Python 2's library hid the program's own commands.py."""
    (tmp_path / "commands.py").write_text("def greet():\n    print 'own'\n")
    (tmp_path / "train.py").write_text("import commands\ncommands.greet()\n")
    ended = run(tmp_path, "train.py")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("own\n", "", 0)


def test_a_program_of_python_3_keeps_its_meaning(tmp_path):
    (tmp_path / "train.py").write_text("print(7 / 2, range(2), f'{3}')\nraise SystemExit(5)\n")
    ended = run(tmp_path, "train.py")
    assert (ended.stdout, ended.returncode) == ("3.5 range(0, 2) 3\n", 5)


@pytest.mark.parametrize(
    ("text", "said", "status"),
    [
        ("print 'a'\nx = (\n", "train.py line 3: SyntaxError: neither Python 3 nor Python 2", 65),
        (None, "the program train.py cannot be read: No such file or directory; correct its name", 66),
        (
            "from paddle_base.runtime.errors import DataError\nprint 1\nraise DataError('sample 3, column 1: no id')\n",
            "train.py line 3: sample 3, column 1: no id",
            65,
        ),
    ],
    ids=["neither", "absent", "an error of ours"],
)
def test_a_wrong_program_is_named_in_one_line(tmp_path, text, said, status):
    if text:
        (tmp_path / "train.py").write_text(text)
    ended = run(tmp_path, "train.py")
    assert (ended.stderr, ended.returncode) == (f"paddle run: {said}\n", status)


def evaluate(expression, **names):
    names["__builtins__"] = python2_syntax._BUILTINS
    exec(compile_program(f"print ''\nfound = {expression}".encode(), "train.py"), names)
    return names["found"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -4),
        ("7 / 2.", 3.5),
        ("True / 2", 0),
        ("{1: 2}.values()[0]", 2),
        ("range(3)[::-1]", [2, 1, 0]),
    ],
)
def test_python_2_computed(expression, value):
    found = evaluate(expression)
    assert (found, type(found)) == (value, type(value))


def test_a_file_that_imports_division_divides_truly():
    names = {"__builtins__": python2_syntax._BUILTINS}
    exec(compile_program(b"from __future__ import division\nprint 1 / 2,\nhalf = 1 / 2\n", "train.py"), names)
    assert names["half"] == 0.5


def test_a_program_runs_where_the_home_directory_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "old.py").write_text("print 7 / 2\n")
    ended = run(tmp_path, "old.py", HOME=str(tmp_path / "file"))
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr


def test_without_fissix_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(python2_syntax, "RefactoringTool", None)
    with pytest.raises(Exception, match=r"train\.py line 1 is Python 2, .*pip install fissix"):
        compile_program(b"print 1\n", "train.py")
