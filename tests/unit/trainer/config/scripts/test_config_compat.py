"""What scripts for Python 2 find (specification 20)."""

import builtins
import gzip
import itertools
import pickle
import sys

import pytest

from paddle_base.runtime.errors import DataError
from trainer.config.scripts.python2 import SCRIPT_BUILTINS, LazyList

# old scripts leave it to the interpreter to close their files
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCRIPT = """
import cPickle, cStringIO, __builtin__, sys
assert list(xrange(3)) == [0, 1, 2]
assert isinstance('a', basestring) and isinstance(u'a', unicode) and isinstance(1, long)
assert reduce(lambda a, b: a + b, [1, 2, 3]) == 6 and cmp(1, 2) == -1
assert map(int, '123')[1:] == [2, 3] and not hasattr(map(int, '1'), '__array__')
assert len(filter(None, [0, 1])) == 1 and zip('ab', 'cd')[0] == ('a', 'c')
assert sys.maxint > 2 ** 31 and cPickle.loads(cPickle.dumps(1)) == 1 and __builtin__.len('a') == 1
assert cStringIO.StringIO('a').read() == 'a'
table = {'k': 1}
assert list(table.iteritems()) == [('k', 1)] and list(table.iterkeys()) == ['k'] and list(table.itervalues()) == [1]
assert table.has_key('k') and not table.has_key('l') and iter('ab').next() == 'a'
class Own(object):
    def next(self, step=1, name=None):
        return step
    def find(self, what, name=None, thing=None):
        return what, name, thing
assert Own().next(step=5, name='n') == 5 and Own().find(1, name=2, thing=3) == (1, 2, 3)
def later():
    return map(str, xrange(2)) + ['x']
"""


def test_a_config_and_the_modules_it_imports_find_what_python_2_had(parse_text, config_dir):
    (config_dir / "old_style.py").write_text(SCRIPT)
    parse_text(SCRIPT + "import old_style\nassert old_style.later() == later() == ['0', '1', 'x']")


def test_a_method_that_a_thing_never_had_is_missing_on_the_script_s_own_line(parse_text):
    with pytest.raises(DataError, match=r"config.py line 3: AttributeError: 'int' object has no attribute 'iteritems'"):
        parse_text("x = 1\nx.iteritems()")
    with pytest.raises(DataError, match=r"config.py line 2: TypeError: 'int' object is not an iterator"):
        parse_text("(1).next()")


def test_what_python_2_pickled_is_read(parse_text):
    parse_text(r"import cPickle; assert cPickle.loads(b'\x80\x02U\x04caf\xe9q\x00.') == u'caf\xe9'")


def test_lines_of_a_compressed_file_are_text_to_methods_that_are_given_a_text(parse_text, config_dir):
    (config_dir / "train.txt.gz").write_bytes(gzip.compress("in IN caf\xe9\n# x\n".encode()))
    parse_text(
        r"""
import gzip
lines = gzip.open('train.txt.gz', 'rb').readlines()
assert lines[0].rstrip('\r\n').split(' ') == ['in', 'IN', u'caf\xe9'] and lines[1].startswith(('#', ';'))
assert lines[0].strip().split() == [b'in', b'IN', u'caf\xe9'.encode('utf8')]  # without a text as in Python 3
assert lines[0].split(b' ', 1)[0] == b'in' and [1, 2].index(2) == 1 and 'aXb'.split('X') == ['a', 'b']
assert b'a b'.decode().split(sep=' ') == ['a', 'b'] and b'ab'.startswith((b'a', b'c'))
"""
    )
    with pytest.raises(DataError, match=r"config.py line 2: AttributeError: 'int' object has no attribute 'split'"):
        parse_text("(1).split('x')")


def test_text_that_is_not_utf_8_is_read_and_found_again(parse_text, config_dir):
    (config_dir / "words.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    parse_text(
        r"""
words = dict((line.strip(), i) for i, line in enumerate(open('words.txt')))
assert words[open('words.txt', 'r').read().strip()] == 0
assert open('words.txt', 'rb').read() == b'caf\xe9\n'
assert open('words.txt', encoding='latin-1').read() == open('words.txt', 'r', -1, 'latin-1').read() == u'caf\xe9\n'
try:
    open('words.txt', errors='strict').read()
except UnicodeDecodeError:
    words['strict'] = 1
assert 'strict' in words
"""
    )


def test_modules_of_directories_that_a_script_adds_are_scripts_too(parse_text, config_dir, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    (config_dir / "common").mkdir()
    (config_dir / "common" / "shared_network.py").write_text("def size(table):\n    return table.has_key('k')\n")
    start = "import sys\nsys.path.append('common')\nimport shared_network\n"
    for _ in range(2):  # the second parse finds the directory there already
        parse_text(start + "assert shared_network.size({'k': 1})")
    with pytest.raises(DataError, match=r"common/shared_network.py line 2 .*'int' object has no attribute"):
        parse_text(start + "shared_network.size(1)")


def test_nothing_of_it_reaches_the_rest_of_the_process(parse_text):
    parse_text(SCRIPT)
    assert not hasattr(builtins, "xrange")
    assert map is not SCRIPT_BUILTINS["map"]


def test_a_lazy_list_is_a_list_and_an_iterator():
    numbers = LazyList(iter([3, 1, 2]))
    assert next(numbers) == 3
    assert list(numbers) == [3, 1, 2] == list(numbers)  # a loop begins at the start, and again
    assert (len(numbers), numbers[0], numbers[1:], numbers == [3, 1, 2]) == (3, 3, [1, 2], True)
    assert [0] + numbers + [9] == [0, 3, 1, 2, 9]  # noqa: RUF005 - what old scripts write
    numbers.sort()
    numbers.append(7)
    numbers[0] = 0
    assert (repr(numbers), 7 in numbers, next(numbers)) == ("[0, 2, 3, 7]", True, 2)
    assert pickle.loads(pickle.dumps(numbers, protocol=0)) == [0, 2, 3, 7]
    assert numbers == LazyList([0, 2, 3, 7])
    with pytest.raises(AttributeError):
        numbers.nosuch  # noqa: B018


def test_an_endless_lazy_list_gives_what_is_asked_for():
    squares = SCRIPT_BUILTINS["map"](lambda n: n * n, itertools.count())
    assert list(itertools.islice(squares, 3)) == [0, 1, 4]
    assert [next(squares), next(squares)] == [0, 1]
    with pytest.raises(StopIteration):
        next(LazyList([]))
