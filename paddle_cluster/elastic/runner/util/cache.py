"""Keeps results of checks in a file for later commands of the same user.

Names are those of `horovod.runner.util.cache`. The file is base64 of JSON and arrays
(`paddle_cluster.elastic.process.objects`); a file that is damaged, or that pickle has written, is replaced.
"""

from __future__ import annotations

import base64
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import replace_file
from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES
from paddle_cluster.elastic.launching.references import dump_bounded_object
from paddle_cluster.elastic.process.objects import load_object


class Cache:
    """Keeps values by key in a file.

    Args: parameters_hash: hash of the parameters of the checks; the values of a file with another hash are ignored.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, cache_folder: str, cache_staleness_threshold_in_minutes: float, parameters_hash: str) -> None:
        folder = Path(cache_folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "cache.bin"
        self._seconds, self._parameters = 60 * cache_staleness_threshold_in_minutes, parameters_hash
        self._lock = threading.Lock()
        self._content = self._read()

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None if the value is missing or too old."""
        with self._lock:
            stamp, value = self._content.get(_name(key), (0.0, None))
        return value if 0 <= time.time() - stamp <= self._seconds else None

    def put(self, key: Any, val: Any) -> None:
        """Store a value. Raises: UsageError: the value is neither plain data nor arrays."""
        with self._lock:
            content = {**self._content, _name(key): (time.time(), val)}
            data = dump_bounded_object({"parameters": self._parameters, "values": content}, f"the value of {key}")
            self._content = content
            replace_file(self._path, base64.b64encode(data).decode("ascii"))

    def _read(self) -> dict[str, tuple[float, Any]]:
        try:
            with self._path.open("rb") as file:
                found = load_object(base64.b64decode(file.read(2 * MOST_VALUE_BYTES)))
            if found["parameters"] != self._parameters:
                return {}
            return {str(key): (float(stamp), value) for key, (stamp, value) in found["values"].items()}
        except (OSError, DataError, LookupError, TypeError, ValueError, AttributeError):
            return {}


def _name(key: Any) -> str:
    """Return a key as text; the order of the members of a set does not count."""
    parts = key if isinstance(key, tuple) else (key,)
    return repr([sorted(map(repr, one)) if isinstance(one, frozenset) else one for one in parts])


def use_cache() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator; the decorated function takes a further argument `fn_cache`, which is a `Cache` or None.

    With a cache, the first result that is not None is stored, and later calls with equal arguments return it.
    """

    def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, fn_cache: Cache | None = None, **kwargs: Any) -> Any:
            if fn_cache is None:
                return func(*args, **kwargs)
            key = (func.__name__, tuple(args[0]) if args else (), *args[1:], frozenset(kwargs.items()))
            result = fn_cache.get(key)
            if result is None:
                result = func(*args, **kwargs)
                if result is not None:
                    fn_cache.put(key, result)
            return result

        return call

    return wrap
