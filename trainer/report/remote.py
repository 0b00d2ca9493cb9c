"""Copies what a report reads of a job's output in a bucket: the records, and not the parameters."""

from __future__ import annotations

import re
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.patience import Patience
from paddle_base.remote.stores import list_files, open_store
from paddle_base.remote.transfer import download
from paddle_base.runtime.durable_files import MOST_TEXT_BYTES, saving_error
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.member_paths import place_below
from paddle_base.runtime.saves import DONE

MOST_FILES = 100_000  # maximum number of files of an output
_OF_SAVE = re.compile(r"(^|/)pass-[0-9]{5,}[^/]*/")
_NAME = "OUTPUT"  # what the command line calls it


def fetch_output(address: Address, folder: Path) -> Path:
    """Copy the records of an output into a directory, and return the directory that stands for the output.

    The files of parameters are empty files of the same sizes, because a report only lists them.

    Raises: PaddleError: see `list_files` and `download`.  VolumeError: the directory cannot be written.
    """
    store, patience = open_store(address), Patience(_NAME)
    root = address.key.rstrip("/")
    parts = [address.root, *filter(None, root.split("/"))]
    output = folder.joinpath(*parts[-2:])
    for file in list_files(store, address.with_key(f"{root}/" if root else ""), patience, MOST_FILES):
        name = file.address.key[len(root) :].lstrip("/")
        try:
            target = place_below(output, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            is_told = not _OF_SAVE.search(name) or target.name == DONE
            if not is_told or file.size > MOST_TEXT_BYTES:
                with target.open("wb") as empty:
                    empty.truncate(max(file.size, 0))
                continue
        except ValueError as problem:
            raise DataError(f"{patience.show(file.address)}: its key {problem}; rename the object") from None
        except OSError as error:
            error.filename = error.filename or str(output)
            raise saving_error(output, error) from error
        download(store, file, target, patience.begin())
    return output
