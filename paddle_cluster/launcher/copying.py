"""Copies the output of a job to a bucket while it trains: each save when it is complete, and its mark last.

The volume stays the only place from which a job resumes. What is copied is noted on the volume, so that a new pod does
not copy it again. A failed copy never ends the job: it is repeated, and the log says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.interface import Store
from paddle_base.remote.patience import Patience, StoppedTransferError
from paddle_base.remote.stores import open_store
from paddle_base.remote.transfer import upload
from paddle_base.runtime.durable_files import read_text_file, write_mark
from paddle_base.runtime.errors import PaddleError
from paddle_base.runtime.saves import DONE, FOLDER, list_saves, order_of
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.text import say

NOTES = ".copied.json"  # in the output: {file: time of its last change in nanoseconds, when it was copied}
LOOK_S = 0.5  # seconds between two looks for a signal
PERIOD_S = 10.0  # seconds between two looks at the output
MOST_NOTES_BYTES = 16 << 20


class OutputCopy:
    """Copies new files of an output to an address. `look` copies what is there now.

    Args: output: the directory of logs, records and saves.  address: where the same files go.  patience: how long each
    file may take.
    """

    def __init__(self, output: Path, address: Address, patience: Patience) -> None:
        self._output, self._address, self._patience = output, address, patience
        self._store: Store | None = None
        self._copied: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(read_text_file(output / NOTES, MOST_NOTES_BYTES))
            self._copied = {str(name): int(moment) for name, moment in dict(found).items()}

    def look(self) -> int:
        """Copy the complete saves that are not copied yet, and then the changed logs and records. Return their number.

        Raises: PaddleError: a file cannot be copied.  OSError: the output cannot be read.
        """
        count = 0
        for folder in ("", FOLDER):
            for name in list_saves(self._output / folder):
                count += self._copy_save(str(Path(folder, name)))
        for name in self._list_others():
            count += self._copy(name)
        return count

    def _copy_save(self, save: str) -> int:
        """Copy a save, and its mark last; while a save is replaced, its copy has no mark."""
        mark = f"{save}/{DONE}"
        moment = self._moment(mark)
        if moment is None or self._copied.get(mark) == moment:
            return 0
        if mark in self._copied:
            address = self._address.below(mark)
            self._patience.begin().repeat(lambda: self._open().remove(address), address)
            del self._copied[mark]
        root = self._output / save
        names = [str(path.relative_to(self._output)) for path in _files_below(root) if path.name != DONE]
        count = sum(self._copy(name) for name in sorted(names))
        if self._moment(mark) != moment:
            return count  # the save was replaced or removed meanwhile; a later look copies the new one
        count += self._copy(mark)
        say(f"copied {root} to {self._address.below(save)}")
        return count

    def _list_others(self) -> list[str]:
        found = []
        for path in _files_below(self._output, leave_saves=True):
            found.append(str(path.relative_to(self._output)))
        return sorted(found)

    def _copy(self, name: str) -> int:
        moment = self._moment(name)
        if moment is None or self._copied.get(name) == moment:
            return 0
        upload(self._open(), self._output / name, self._address.below(name), self._patience)
        self._copied[name] = moment
        with contextlib.suppress(OSError):
            write_mark(self._output / NOTES, [json.dumps(self._copied).encode()])
        return 1

    def _moment(self, name: str) -> int | None:
        try:
            return (self._output / name).stat().st_mtime_ns
        except OSError:
            return None

    def _open(self) -> Store:
        if self._store is None:
            self._store = open_store(self._address)
        return self._store


def _files_below(root: Path, *, leave_saves: bool = False) -> Iterator[Path]:
    """Yield the regular files below a directory that are not hidden. Links are not followed."""
    for above, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not (leave_saves and (order_of(name) or name == FOLDER))
        ]
        for name in names:
            path = Path(above, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


class CopyingThread:
    """Looks at the output every PERIOD_S seconds in a thread of its own, until the end of a `with` block.

    Args: address: None: nothing is copied.  seconds: after them the copy of a file gives up until the next look.
    stop: after a signal, nothing waits for the copy of what is left; the next pod copies it.
    """

    def __init__(self, output: Path, address: Address | None, seconds: float, stop: Stop) -> None:
        self._ending, self._address, self._stop = threading.Event(), address, stop
        self._thread: threading.Thread | None = None
        if address is not None:
            patience = Patience("OUTPUT_COPY", seconds, "the next look tries again", say)
            copy = OutputCopy(output, address, patience)
            self._thread = threading.Thread(target=self._run, args=(copy,), name="output-copy", daemon=True)

    def __enter__(self) -> CopyingThread:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Copy what is left."""
        self._ending.set()
        while self._thread is not None and self._thread.is_alive() and not self._stop.requested:
            self._thread.join(LOOK_S)

    def _run(self, copy: OutputCopy) -> None:
        is_last = False
        while not is_last:
            is_last = self._ending.wait(PERIOD_S)
            try:
                copy.look()
            except Exception as error:  # whatever the library of a store raises, the next look tries again
                is_known = isinstance(error, (PaddleError, OSError, StoppedTransferError))
                say(f"error: {error}" if is_known else f"error: the output is not copied: {error!r}")
                if is_last:
                    say(f"the copy of the output in {self._address} is not complete; the volume has all of it")
