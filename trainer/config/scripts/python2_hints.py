"""What Python 3 writes in place of names, modules and syntax of Python 2 that scripts cannot use.

docs/porting.md has the whole table.
"""

from __future__ import annotations

_NAMES = {
    "apply": "f(*arguments)",
    "buffer": "memoryview(data)",
    "execfile": "exec(open(name).read())",
    "file": "open(name)",
    "intern": "sys.intern(text)",
    "reload": "importlib.reload(module), and nothing before sys.setdefaultencoding, which is not needed",
    "unichr": "chr(number)",
}
_MODULES = {
    "ConfigParser": "import configparser",
    "HTMLParser": "import html.parser",
    "Queue": "import queue",
    "StringIO": "from io import StringIO",
    "commands": "import subprocess",
    "md5": "import hashlib",
    "sets": "set, which needs no import",
    "thread": "import threading",
    "urllib2": "import urllib.request",
    "urlparse": "import urllib.parse",
}
_MEMBERS = {
    "ifilter": "filter",
    "imap": "map",
    "izip": "zip",
    "izip_longest": "zip_longest",
    "decode": "the text itself, because files are opened as UTF-8",
    "join": "' '.join(items)",
    "letters": "string.ascii_letters",
    "lowercase": "string.ascii_lowercase",
    "maketrans": "str.maketrans(a, b)",
    "split": "text.split()",
    "uppercase": "string.ascii_uppercase",
}
# parts of the messages of Python 3 for syntax of Python 2
_SYNTAX = (
    "Missing parentheses in call to",
    "cannot be parenthesized",
    "inconsistent use of tabs",
    "invalid decimal literal",
    "invalid syntax",
    "leading zeros in decimal integer",
    "multiple exception types must be parenthesized",
)


def python2_hint(error: BaseException) -> str:
    """Return what to write in place of a part of Python 2 that caused the error, as `; ...`, or ""."""
    if isinstance(error, SyntaxError):
        is_old = any(part in str(error.msg) for part in _SYNTAX)
        return "; if this is Python 2, docs/porting.md says what to write" if is_old else ""
    written = ""
    if isinstance(error, NameError):
        written = _NAMES.get(str(error.name), "")
    elif isinstance(error, ModuleNotFoundError):
        written = _MODULES.get(str(error.name), "")
    elif isinstance(error, ImportError):  # cannot import name 'izip' from 'itertools'
        written = _MEMBERS.get(error.msg.partition("'")[2].partition("'")[0], "")
    elif isinstance(error, AttributeError):
        is_old = getattr(error.obj, "__name__", "") == "string" or (
            isinstance(error.obj, str) and error.name == "decode"
        )
        written = _MEMBERS.get(str(error.name), "") if is_old else ""
    return f"; Python 3 writes {written}" if written else ""
