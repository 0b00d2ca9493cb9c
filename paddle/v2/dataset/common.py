"""The cache of data sets, downloads into it, and files of samples for the trainers of a cluster."""

from __future__ import annotations

import glob
import hashlib
import importlib
import os
import pickle
import pkgutil
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import requests

from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import OutputFile
from paddle_base.runtime.errors import DataError, MissingInputError, UsageError, VolumeError
from trainer.data.plain_pickle import PlainPickleError, load_sample
from trainer.v2.errors import WrongTypeError

# the folder of all caches; programs assign to it
DATA_HOME: str = os.environ.get("PADDLE_DATASET_HOME") or str(Path.home() / ".cache" / "paddle" / "dataset")
MIRROR = "PADDLE_DATASET_MIRROR"  # variable: an address at which the files have the paths that they have in the cache

Reader = Callable[[], Iterable[Any]]

_ATTEMPTS = 3
_TIMEOUT = 30.0  # seconds without a byte from the server
_PIECE = 1 << 20
_MOST_DOWNLOAD = 16 << 30  # maximum bytes of a download; the largest data set has 2 GB
_MOST_SAMPLES_FILE = 1 << 30  # maximum bytes of a file of `split`


class Samples:
    """Samples that are an iterator and a reader at once: v0.10 returned an iterator, v0.11 a reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._started: Iterator[Any] | None = None

    def __call__(self) -> Iterator[Any]:
        """Return an iterator of all samples."""
        return iter(self._reader())

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator of all samples."""
        return self()

    def __next__(self) -> Any:
        """Return the next sample."""
        if self._started is None:
            self._started = self()
        return next(self._started)


def md5file(fname: str | Path) -> str:
    """Return the MD5 of a file, in hexadecimal digits."""
    with Path(fname).open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, module_name: str, md5sum: str | None) -> str:
    """Return the path of a file in the cache, which is fetched if it is absent.

    A file of another MD5 is used all the same, with a WARNING: it may be the user's own.
    Args: md5sum: hexadecimal digits; None or "": any content.
    Raises: MissingInputError: the file cannot be fetched, or arrives with another MD5.  VolumeError: the cache cannot
        be written.
    """
    name = url.rsplit("/", 1)[-1]
    path = Path(DATA_HOME) / module_name / name
    if path.is_file():
        found = md5file(path) if md5sum else md5sum
        if found != md5sum:
            glog.warning(
                f"{path} has the MD5 {found}, not that of {url} ({md5sum}); it is used, remove it to fetch that"
            )
        return str(path)
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    address = f"{mirror}/{module_name}/{name}" if mirror else url
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"{address} is no address of http or https; correct {MIRROR if mirror else 'the URL'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VolumeError(
            f"the cache {path.parent} cannot be made: {error.strerror}; set PADDLE_DATASET_HOME to a folder that can "
            "be written, or that has the files"
        ) from None
    glog.info(f"{path} does not exist: fetching {address}")
    failed: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            found = _fetch(address, path, md5sum)
        except (requests.RequestException, ConnectionError) as failure:
            failed = failure
            continue
        if found is None:
            return str(path)
        failed = DataError(f"what came has the MD5 {found}")
    raise MissingInputError(
        f"{address} cannot be fetched ({_reason(failed)}); put the file at {path} (MD5 {md5sum or 'any'}), or set "
        f"{MIRROR} to the address of a copy of the cache, or HTTPS_PROXY"
    )


def _reason(error: BaseException | None) -> str:
    """Return what failed at the lowest level: requests and urllib3 wrap it in several exceptions of long texts."""
    while error is not None and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = str(error)
    return text if len(text) < 200 else f"{text[:200]}..."


def _fetch(address: str, path: Path, md5sum: str | None) -> str | None:
    """Fetch a file into its place; if it has another MD5, return this one, and leave nothing."""
    with requests.get(address, stream=True, timeout=_TIMEOUT) as answer:
        answer.raise_for_status()
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        digest, size = hashlib.md5(usedforsecurity=False), 0
        try:
            with OutputFile(partial) as file:
                for piece in answer.iter_content(_PIECE):
                    size += len(piece)
                    if size > _MOST_DOWNLOAD:
                        raise ConnectionError(f"it has more than {_MOST_DOWNLOAD} bytes")
                    digest.update(piece)
                    file.write(piece)
            if md5sum and digest.hexdigest() != md5sum:
                return digest.hexdigest()
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return None


def _modules() -> Iterator[Any]:
    package = importlib.import_module("paddle.v2.dataset")
    for one in pkgutil.iter_modules(package.__path__):
        if not one.name.startswith("_"):
            yield importlib.import_module(f"{package.__name__}.{one.name}")


def fetch_all() -> None:
    """Fetch the files of every data set."""
    for module in _modules():
        if hasattr(module, "fetch"):
            module.fetch()


def fetch_all_recordio(path: str) -> None:
    """Write every data set as RecordIO files, each into its own folder below `path`."""
    for module in _modules():
        if hasattr(module, "convert") and module.__name__ != __name__:
            folder = Path(path) / module.__name__.rsplit(".", 1)[-1]
            folder.mkdir(parents=True, exist_ok=True)
            module.convert(str(folder))


def _cut(reader: Reader, line_count: int) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the file, samples): v0.11's first file has one sample more than the others."""
    samples: list[Any] = []
    number = 0
    for count, sample in enumerate(reader()):
        samples.append(sample)
        if count >= line_count and count % line_count == 0:
            yield number, samples
            samples, number = [], number + 1
    if samples:
        yield number, samples


def split(
    reader: Reader,
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[list[Any], BinaryIO], Any] = pickle.dump,
) -> None:
    """Write the samples of a reader as files of lists of `line_count` samples (the first has one more).

    Args: suffix: the path of file n is `suffix % n`.  dumper: writes a list into an open file.
    """
    if not callable(dumper):
        raise WrongTypeError("dumper should be callable.")
    for number, samples in _cut(reader, line_count):
        with Path(suffix % number).open("wb") as file:
            dumper(samples, file)


def cluster_files_reader(
    files_pattern: str, trainer_count: int, trainer_id: int, loader: Callable[[BinaryIO], Any] | None = None
) -> Reader:
    """Return a reader of one trainer's files of `split`: of the sorted files, each `trainer_count`-th.

    Args: loader: reads a list of samples from an open file; default: pickles of plain values and arrays.
    """

    def reader() -> Iterator[Any]:
        names = sorted(glob.glob(files_pattern))  # noqa: PTH207 - a pattern may be absolute
        if not names:
            raise MissingInputError(f"no file matches {files_pattern}; write the files by paddle.dataset.common.split")
        for name in names[trainer_id::trainer_count]:
            glog.info(f"reading {name}")
            with Path(name).open("rb") as file:
                yield from (loader or _load_samples)(file)

    return reader


def _load_samples(file: BinaryIO) -> Any:
    try:
        return load_sample(file.read(_MOST_SAMPLES_FILE + 1), _MOST_SAMPLES_FILE)
    except PlainPickleError as error:
        raise DataError(f"{file.name} is no pickled list of samples: {error}") from error


def convert(output_path: str, reader: Reader, line_count: int, name_prefix: str) -> None:
    """Write the samples of a reader as RecordIO files `<output_path>/<name_prefix>-00000`, ...

    A file has `line_count` pickled samples (the first has one more) in random order (module `random`).
    """
    if line_count < 1:
        raise UsageError(f"line_count is {line_count}; a file has at least one sample")
    for number, samples in _cut(reader, line_count):
        random.shuffle(samples)
        with RecordIOWriter(Path(output_path) / f"{name_prefix}-{number:05d}") as writer:
            for sample in samples:
                writer.write(pickle.dumps(sample, 0))
