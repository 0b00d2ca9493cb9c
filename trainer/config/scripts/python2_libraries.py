"""The modules of Python 2, and the members that its modules, numpy and pillow had in 2017."""

from __future__ import annotations

import _thread
import collections
import collections.abc
import configparser
import contextlib
import errno
import functools
import html.entities
import html.parser
import http.client
import importlib.machinery
import inspect
import io
import itertools
import operator
import os
import queue
import string
import subprocess
import sys
import time
import types
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from trainer.config.scripts.python2_meaning import divide

_BAD_BYTES = "surrogateescape"


class StringIO:
    """A file in memory, of texts or of bytes: the first write decides, or the initial value."""

    def __init__(self, initial: str | bytes = "") -> None:
        self._file: Any = None
        if initial:
            self._file = io.BytesIO(initial) if isinstance(initial, bytes) else io.StringIO(initial)

    @property
    def buffer(self) -> io.BytesIO:
        """The file of bytes, for what writes bytes into any file."""
        self._file = io.BytesIO() if self._file is None else self._file
        if not isinstance(self._file, io.BytesIO):
            raise AttributeError("buffer")
        return self._file

    def write(self, data: Any) -> None:
        """Write a text or bytes."""
        if self._file is None:
            self._file = io.StringIO() if isinstance(data, str) else io.BytesIO()
        if isinstance(self._file, io.BytesIO) and isinstance(data, str):
            data = data.encode("utf-8", _BAD_BYTES)
        elif isinstance(self._file, io.StringIO) and not isinstance(data, str):
            data = bytes(data).decode("utf-8", _BAD_BYTES)
        self._file.write(data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file or ())

    def __getattr__(self, name: str) -> Any:
        return getattr(io.StringIO() if self._file is None else self._file, name)


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name, f"The module that Python 2 called {name}.")
    vars(module).update(members)
    return module


def install_modules() -> None:
    """Make Python 2's modules importable, and the members that modules, numpy and pillow do not have any more."""
    for name, module in {
        "ConfigParser": configparser,
        "HTMLParser": html.parser,
        "Queue": queue,
        "StringIO": _module("StringIO", StringIO=StringIO),
        "UserDict": _module("UserDict", UserDict=collections.UserDict, DictMixin=collections.abc.MutableMapping),
        "commands": _module("commands", getoutput=subprocess.getoutput, getstatusoutput=subprocess.getstatusoutput),
        "htmlentitydefs": html.entities,
        "httplib": http.client,
        "sets": _module("sets", Set=set, ImmutableSet=frozenset),
        "thread": _thread,
        "urllib2": _module("urllib2", **vars(urllib.request), **_public(urllib.error)),
        "urlparse": urllib.parse,
    }.items():
        if importlib.machinery.PathFinder.find_spec(name) is None:  # the program's own commands.py comes first
            sys.modules.setdefault(name, module)
    sys.modules["cStringIO"] = _module("cStringIO", StringIO=StringIO)
    _add(itertools, imap=map, izip=zip, ifilter=filter, izip_longest=itertools.zip_longest)
    _add(operator, div=divide, isCallable=callable)
    _add(os, getcwdu=os.getcwd, errno=errno)
    _add(time, clock=time.process_time)
    _add(inspect, getargspec=inspect.getfullargspec)
    _add(types, StringType=str, UnicodeType=str, IntType=int, LongType=int, FloatType=float, ListType=list)
    _add(types, DictType=dict, TupleType=tuple, BooleanType=bool, StringTypes=(str,))
    _add(sys, setdefaultencoding=lambda _: None)
    _add(collections, **{name: getattr(collections.abc, name) for name in collections.abc.__all__})
    _add(string, atoi=int, atof=float, maketrans=str.maketrans, joinfields=functools.partial(_call_of_text, "join"))
    _add(string, **{name: getattr(string, f"ascii_{name}") for name in ("letters", "lowercase", "uppercase")})
    for name in ("join", "split", "strip", "replace", "lower", "upper", "zfill", "find"):
        _add(string, **{name: functools.partial(_call_of_text, name)})
    _add(urllib, **{name: getattr(urllib.request, name) for name in ("urlopen", "urlretrieve")})
    _add(urllib, **{name: getattr(urllib.parse, name) for name in ("quote", "unquote", "urlencode")})
    _install_numpy()
    with contextlib.suppress(ImportError):  # an optional package
        image = importlib.import_module("PIL.Image")
        _add(image, ANTIALIAS=image.LANCZOS)


def _add(module: ModuleType, **members: Any) -> None:
    for name, member in members.items():
        vars(module).setdefault(name, member)


def _install_numpy() -> None:
    _add(np, float=float, int=int, object=object, str=str, unicode=str, float_=np.float64, complex=complex)
    _add(np, string_=np.bytes_, unicode_=np.str_, Inf=np.inf, NaN=np.nan, infty=np.inf, product=np.prod)
    _add(np, row_stack=np.vstack, asscalar=lambda array: array.item(), alltrue=np.all, sometrue=np.any)
    read_text = np.fromstring

    @functools.wraps(read_text)
    def fromstring(data: Any, dtype: Any = float, count: int = -1, sep: str = "", **more: Any) -> Any:
        if sep:
            return read_text(data, dtype, count, sep=sep, **more)
        return np.frombuffer(data.encode("utf-8", _BAD_BYTES) if isinstance(data, str) else data, dtype, count).copy()

    vars(np)["fromstring"] = fromstring


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in vars(urllib.request)}


def _call_of_text(name: str, text: Any, *arguments: Any) -> Any:
    if name == "join":
        return (arguments[0] if arguments else " ").join(text)
    return getattr(text, name)(*arguments)
