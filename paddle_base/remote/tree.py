"""Copies the files below an address into a directory, some at a time, with one deadline and one line of progress."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.interface import RemoteFile, Store
from paddle_base.remote.patience import Deadline, Patience
from paddle_base.remote.stores import list_files, open_store
from paddle_base.remote.transfer import download
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import saving_error
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.member_paths import IMPOSSIBLE, place_below
from paddle_base.runtime.terminal import draw_bar, is_terminal

AT_A_TIME = 6  # transfers; each holds at most two blocks of 4 MiB
LOOK_S = 0.2  # seconds after which a thread that waits looks whether another one has failed
KNOWN_FILES = 10_000  # a shorter listing is read first, so that the progress has a total
BAR_PERIOD_S, LINE_PERIOD_S = 0.1, 30.0  # minimum seconds between two updates of the bar, and between two lines

Count = Callable[[int, str], None]
"""Counts the bytes of a piece of the file of this name, before the piece is written; may raise a PaddleError."""


def download_all(
    address: Address, folder: Path, patience: Patience, count: Count = lambda _, __: None, most: int | None = None
) -> list[Path]:
    """Copy the file of an address, those below it, or those that match it, into a directory, and return their paths.

    The names in the directory are those below the address, or below the fixed beginning of a pattern.

    Args: count: see `Count`; one thread at a time calls it.  most: maximum number of files; None: that of `list_files`.
    Raises: MissingInputError: there is none.  DataError: there are too many, or a name is no path below the directory.
    VolumeError: the directory cannot be written.  PaddleError: see `Patience`.
    """
    store = open_store(address)
    files = list_files(store, address, patience, *(() if most is None else (most,)))
    return _Copying(store, address, folder, patience, count).run(files)


class Progress:
    """The state of a transfer, as a bar on a terminal, or as a log line every half minute.

    Args: total: bytes of all files; 0 if not known.
    """

    def __init__(self, patience: Patience, address: Address, total: int) -> None:
        self._patience, self._address, self._total = patience, address, total
        self._is_terminal = is_terminal(sys.stderr, os.environ)
        self._began = patience.clock()
        self._next = self._began + (BAR_PERIOD_S if self._is_terminal else LINE_PERIOD_S)
        self.files = self.received = 0

    def add(self, received: int) -> None:
        """Count the bytes of a piece."""
        self.received += received
        now = self._patience.clock()
        if now < self._next:
            return
        self._next = now + (BAR_PERIOD_S if self._is_terminal else LINE_PERIOD_S)
        line = self.text(now)
        if self._is_terminal:
            bar = f"{draw_bar(self.received / self._total)} " if self._total else ""
            glog.set_bottom_line(f"{bar}{line}")
        else:
            self._patience.say(line)

    def text(self, now: float) -> str:
        """Return the line of the log."""
        speed = self.received / max(now - self._began, 1e-9)
        of = f" of {self._total / 1e6:.1f}" if self._total else ""
        return f"{self._address}: {self.files} files, {self.received / 1e6:.1f}{of} MB, {speed / 1e6:.1f} MB/s"

    def end(self) -> None:
        """Remove the bar."""
        if self._is_terminal:
            glog.set_bottom_line("")


class _Copying:
    """One call of `download_all`."""

    def __init__(self, store: Store, address: Address, folder: Path, patience: Patience, count: Count) -> None:
        self._store, self._address, self._folder = store, address, folder
        self._patience, self._count = patience, count
        self._deadline = patience.begin()
        self._lock = threading.Lock()
        self._progress = Progress(patience, address, 0)
        self._written: list[Path] = []
        self._error: BaseException | None = None

    def run(self, files: Iterator[RemoteFile]) -> list[Path]:
        first = list(itertools.islice(files, KNOWN_FILES))
        if len(first) < KNOWN_FILES:
            self._progress = Progress(self._patience, self._address, sum(max(file.size, 0) for file in first))
        try:
            if len(first) == 1:
                self._written.append(self._copy(first[0], self._deadline))
            else:
                self._run_threads(itertools.chain(first, files))
        finally:
            self._deadline.stop()
            self._progress.end()
        return sorted(self._written)

    def _run_threads(self, files: Iterator[RemoteFile]) -> None:
        """Copy the files in threads. They are daemons: after SIGTERM, none of them has to wait for its server."""
        waiting: queue.Queue[RemoteFile | None] = queue.Queue(2 * AT_A_TIME)
        threads = [threading.Thread(target=self._work, args=(waiting,), daemon=True) for _ in range(AT_A_TIME)]
        for thread in threads:
            thread.start()
        for file in itertools.chain(files, itertools.repeat(None, AT_A_TIME)):
            while self._error is None:
                with contextlib.suppress(queue.Full):
                    waiting.put(file, timeout=LOOK_S)
                    break
        while self._error is None and any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(LOOK_S)
        if self._error is not None:
            raise self._error

    def _work(self, waiting: queue.Queue[RemoteFile | None]) -> None:
        while (file := waiting.get()) is not None:
            try:
                path = self._copy(file, self._deadline.again())
            except BaseException as error:
                with self._lock:
                    self._error = self._error or error
                return
            with self._lock:
                self._written.append(path)

    def _copy(self, file: RemoteFile, deadline: Deadline) -> Path:
        shown = self._patience.show(file.address)
        deadline.check(file.address, "no byte")
        try:
            target = place_below(self._folder, self._name_of(file))
        except ValueError as problem:
            raise DataError(f"{shown}: its key {problem} of the download; rename the object") from None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                raise IsADirectoryError(21, "Is a directory", str(target))
        except OSError as error:
            if error.errno in IMPOSSIBLE:
                message = f"{shown} cannot be a file: a part of its key is a file as well as a directory; rename one"
                raise DataError(message) from error
            raise saving_error(target.parent, error) from error
        download(self._store, file, target, deadline, lambda received: self._take(received, file))
        with self._lock:
            self._progress.files += 1
        return target

    def _name_of(self, file: RemoteFile) -> str:
        if file.address == self._address:
            return file.address.name
        prefix = self._address.prefix
        if not self._address.has_pattern and prefix:
            prefix = prefix.rstrip("/") + "/"
        return file.address.key.removeprefix(prefix)

    def _take(self, received: int, file: RemoteFile) -> None:
        with self._lock:
            self._count(received, self._patience.show(file.address))
            self._progress.add(received)
