"""Programs in the syntax of Python 2: converted in memory, with Python 2's results and their own line numbers."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
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


BESIDE = "def half(n):\n    return n / 2\n"
PYTHON_2, BOTH, PYTHON_3 = (
    "from reader import half\nprint half(7)\n",
    "from reader import half\nprint(half(7))\n",
    "from reader import half\nprint(f'{half(7)}')\n",
)


@pytest.mark.parametrize(
    ("main", "beside", "printed", "said"),
    [
        # the Book's resnet.py computes (depth - 2) / 6; only the train.py beside it has a print statement
        (PYTHON_2, BESIDE, "3\n", ""),
        (BOTH, BESIDE + "print 'x'\n", "x\n3\n", "train.py runs as Python 2, because reader.py, which it"),
        (BOTH, BESIDE, "3.5\n", ""),
        (PYTHON_3, BESIDE + "print 'x'\n", "x\n3\n", "runs as Python 2"),
        (PYTHON_2, BESIDE + "assert f'{7 / 2}' == '3.5'\n", "3.5\n", ""),
        ("try:\n    import reader\nexcept SyntaxError:\n    print(7 / 2)\n", "x = (\n", "3.5\n", ""),
    ],
    ids=[
        "the program",
        "a module",
        "none",
        "a program with an f-string",
        "a module with an f-string",
        "a broken module",
    ],
)
def test_a_program_is_python_2_if_one_of_its_files_is(tmp_path, main, beside, printed, said):
    (tmp_path / "train.py").write_text(main)
    (tmp_path / "reader.py").write_text(beside)
    ended = run(tmp_path, "train.py")
    assert (ended.stdout, ended.returncode) == (printed, 0)
    assert said in ended.stderr if said else not ended.stderr


OF_2017 = """\
import collections, cStringIO, gzip, os, pickle, string, struct, types
import numpy as np
from PIL import Image

print np.ones(2, np.int) / 2, np.fromstring(np.zeros(1, np.float32).tostring(), np.float32), Image.ANTIALIAS >= 0
pickle.dump({'a': 1}, open('saved.pkl', 'w'))
print pickle.load(open('saved.pkl'))
with gzip.open('lines.gz', 'w') as packed:
    packed.write('a b\\n')
print [line.strip().split(' ') for line in gzip.open('lines.gz')]
with open('numbers', 'w') as numbers:
    numbers.write(struct.pack('i', 7))
print np.fromfile(open('numbers'), np.int32)
file = cStringIO.StringIO()
file.write('text')
print file.getvalue(), struct.unpack('i', cStringIO.StringIO(struct.pack('i', 7)).read())
print isinstance('a', types.StringTypes), string.zfill('3', 2), issubclass(dict, collections.Mapping)
import htmlentitydefs, httplib, sets, UserDict
print sets.Set([1]) == set([1]), UserDict.UserDict(a=1)['a'], httplib.OK == 200, htmlentitydefs.entitydefs['amp']
"""


def test_libraries_have_what_programs_of_2017_used(tmp_path):
    (tmp_path / "train.py").write_text(OF_2017)
    ended = run(tmp_path, "train.py")
    assert (ended.stderr, ended.stdout.splitlines()) == ("", [
        "[0 0] [0.] True", "{'a': 1}", "[['a', 'b']]", "[7]", "text (7,)", "True 03 True",
        "True 1 True &",
    ])  # fmt: skip


def test_stop_iteration_ends_a_generator_and_other_functions_raise_it():
    text = """
def pairs(items):
    "Yield pairs."
    items = iter(items)
    while True:
        yield items.next(), items.next()

def end():
    yield 1
    raise StopIteration

def first(items):
    return (lambda: iter(items).next())()

print ''
found = list(pairs(range(5))), list(end()), pairs.__doc__
"""
    names = {"__builtins__": python2_syntax._BUILTINS}
    exec(compile_program(text.encode(), "train.py"), names)
    assert names["found"] == ([(0, 1), (2, 3)], [1], "Yield pairs.")
    with pytest.raises(StopIteration):
        names["first"]([])


def test_division_in_place_divides_as_python_2():
    text = """
class Box(object):
    n = 7
    def __div__(self, other):
        return 'div'

print ''
box, items, array, halves = Box(), [9, 9], np.array([7, 8]), np.array([3.0])
alias = halves
box.n /= 2
items[len(items) - 1] /= 2
table = np.array([[9, 9, 9], [9, 9, 9]])
table[1, 1:] /= 2
array /= 2
halves /= 2
found = box.n, items, table.tolist(), array.tolist(), alias.tolist(), box / 2
"""
    names = {"__builtins__": python2_syntax._BUILTINS, "np": np}
    exec(compile_program(text.encode(), "train.py"), names)
    assert names["found"] == (3, [9, 4], [[9, 9, 9], [9, 4, 4]], [3, 4], [1.5], "div")


def test_a_module_of_the_program_comes_before_one_of_python_2s_library(tmp_path):
    """`commands` of Python 2's library hid the program's own commands.py."""
    (tmp_path / "commands.py").write_text("def greet():\n    print 'own'\n")
    (tmp_path / "train.py").write_text("import commands\nprint 'its'\ncommands.greet()\n")
    ended = run(tmp_path, "train.py")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("its\nown\n", "", 0)


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
        (
            "print 1\nimport paddle.v2.fluid as fluid\n",
            "train.py line 2: No module named 'paddle.v2.fluid'; fluid came after v0.10: use the layers and "
            "trainer.SGD of paddle.v2, see docs/v2.md",
            78,
        ),
        (
            "print 1\nimport py_paddle.swig_paddle as api\n",
            "train.py line 2: ModuleNotFoundError: No module named 'py_paddle'; a program trains and "
            "predicts by paddle.v2: see docs/v2.md; with a config, paddle train --job=test --predict_output_dir=DIR "
            "predicts: see docs/your-own-job.md",
            65,
        ),
        (
            "import paddle.v2 as paddle\nprint 1\npaddle.layer.fcc(size=1)\n",
            "train.py line 3: paddle.v2.layer has no 'fcc'; did you mean 'fc'?",
            78,
        ),
        (
            "import paddle.v2 as paddle\nprint 1\npaddle.batch(3, 4)\n",
            "train.py line 3: batch: the reader is 3; it must be a function that returns samples",
            78,
        ),
    ],
    ids=["neither", "absent", "an error of ours", "fluid", "py_paddle", "a wrong name", "a wrong type"],
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
        ("sorted([1, 3, 2], cmp=lambda a, b: cmp(b, a))", [3, 2, 1]),
        ("sorted([1, 3, 2], lambda a, b: cmp(b, a), lambda n: -n)", [1, 2, 3]),
        ("(lambda items: (items.sort(lambda a, b: cmp(b, a)), items)[1])([1, 3, 2])", [3, 2, 1]),
        ("map(None, [1, 2], [3])", [(1, 3), (2, None)]),
        ("map(int, '12')", [1, 2]),
        ("zip([1, 2], [3])", [(1, 3)]),
        ("filter(lambda c: c != 'a', 'abc')", "bc"),
        ("filter(None, (0, 1))", (1,)),
        ("round(2.5), round(-0.5), round(2.675, 2), round(7)", (3.0, -1.0, 2.67, 7.0)),
        ("'abc'.decode('utf-8')", "abc"),
        ("u'd\u00e9j\u00e0'.encode('utf-8')", "d\u00e9j\u00e0"),
        ("unicode('abc', 'utf-8') + unicode(3)", "abc3"),
        ("'a.b,c'.translate(None, '.,')", "abc"),
        ("{1: 2}.viewkeys() & {1, 3}", {1}),
    ],
)
def test_python_2_computed(expression, value):
    found = evaluate(expression)
    assert (found, type(found)) == (value, type(value))


def test_next_of_what_is_no_iterator_is_its_own_method(tmp_path):
    """The tokenizer of imdb asks a tar file for its next member; `next(tar)` was a TypeError."""
    (tmp_path / "a.txt").write_text("x")
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path / "a.txt", "a.txt")
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert evaluate("[tar.next().name, tar.next(), iter([3]).next(), next(iter([]), 4)]", tar=tar) == [
            "a.txt", None, 3, 4,
        ]  # fmt: skip


def test_sets_of_texts_have_the_same_order_in_every_run(tmp_path):
    """A program that numbers the words of a set got other numbers in each run, and in each pod of a job."""
    (tmp_path / "train.py").write_text("import sys\nprint hash('abc'), sys.flags.hash_randomization\n")
    wrapper = Path(python2_syntax.__file__).parents[3] / "paddle" / "bin" / "paddle"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = []
    for seed in ({}, {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "7"}):
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
        environ |= {"PATH": path, **seed}
        command = [wrapper, "run", "train.py"]
        printed.append(subprocess.check_output(command, cwd=tmp_path, env=environ, text=True).split())
    assert printed[0] == printed[1] and printed[0][1] == "0"
    assert printed[2][0] != printed[0][0], "a seed of the user counts"


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
