"""Functions that make a reader of readers: the names and rules of v0.11's `paddle.v2.reader.decorator`.

Better than there: an exception of a reader or mapper in a thread reaches the program, threads end when the program
leaves the loop, and the last line of a command counts without a line break.
"""

from __future__ import annotations

import itertools
import queue
import random
import subprocess
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from trainer.v2.errors import WrongTypeError, advising

Reader = Callable[[], Iterable[Any]]

_WAIT = 0.1  # seconds after which a waiting thread looks whether the loop has ended
_END = object()


class ComposeNotAligned(ValueError):
    """The readers of `compose` have unequal numbers of samples."""


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Return a reader of `func(sample of the first reader, sample of the second, ...)`; the shortest reader ends it."""

    def reader() -> Iterator[Any]:
        return map(func, *(one() for one in readers))

    return reader


@advising
def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Return a reader that takes `buf_size` samples at a time and gives them in random order (module `random`)."""

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, max(buf_size, 1))):
            random.shuffle(part)
            yield from part

    return shuffled


def chain(*readers: Reader) -> Reader:
    """Return a reader of the samples of the first reader, then of the second, and so on."""

    def reader() -> Iterator[Any]:
        return itertools.chain(*[one() for one in readers])  # v0.10 calls all readers first

    return reader


def compose(*readers: Reader, check_alignment: bool = True, **_: Any) -> Reader:
    """Return a reader whose samples are the tuples of one sample of each reader, joined into one.

    Raises: ComposeNotAligned (of the reader): a reader ends before another one; not with `check_alignment=False`,
        where the shortest reader ends all.
    """

    def reader() -> Iterator[tuple[Any, ...]]:
        every = [one() for one in readers]
        if not check_alignment:
            for samples in zip(*every):  # noqa: B905 - the shortest ends it
                yield sum(map(_as_tuple, samples), ())
            return
        for samples in itertools.zip_longest(*every, fillvalue=_END):
            ended = [number for number, sample in enumerate(samples) if sample is _END]
            if ended:
                raise ComposeNotAligned(f"reader {ended[0]} of compose ends before another one")
            yield sum(map(_as_tuple, samples), ())

    return reader


def _as_tuple(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)


@advising
def buffered(reader: Reader, size: int) -> Reader:
    """Return a reader that a thread reads ahead by up to `size` samples (0: without a limit)."""

    def ahead() -> Iterator[Any]:
        with _Ahead(reader, size) as samples:
            yield from samples

    return ahead


@advising
def firstn(reader: Reader, n: int) -> Reader:
    """Return a reader of the first `n` samples."""

    def first() -> Iterator[Any]:
        return itertools.islice(reader(), max(n, 0))

    return first


@advising
def xmap_readers(
    mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False
) -> Reader:
    """Return a reader of `mapper(sample)`, computed by `process_num` threads, up to `buffer_size` samples ahead.

    Args: order: v0.11's switch; the results come in the order of the samples in any case.
    """

    def mapped() -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        errors: list[BaseException] = []
        with ThreadPoolExecutor(process_num) as threads:
            try:
                for sample in _until_error(buffered(reader, buffer_size)(), errors):
                    waiting.append(threads.submit(mapper, sample))
                    # the results that are ready go on at once, so a slow reader delays none
                    while waiting and (len(waiting) > max(buffer_size, process_num) or waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
                if errors:
                    raise errors[0]
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    return mapped


def _until_error(samples: Iterable[Any], errors: list[BaseException]) -> Iterator[Any]:
    """Yield samples. Put the exception that ends them into a list: the samples before it may still be computed."""
    try:
        yield from samples
    except GeneratorExit:  # of the program, which leaves the loop
        raise
    except BaseException as error:
        errors.append(error)


@advising
def pipe_reader(
    left_cmd: str,
    parser: Callable[[Any], Iterable[Any]],
    bufsize: int = 8192,
    file_type: str = "plain",
    cut_lines: bool = True,
    line_break: str = "\n",
) -> Reader:
    """Return a reader of the output of a command, which each call of the reader starts again.

    Args: left_cmd: the command; its words are separated by blanks, and no shell reads it.  parser: gets a list of
        lines (str, without `line_break`), or with `cut_lines=False` a piece of bytes; returns samples.  bufsize: bytes
        of a piece.  file_type: "plain" or "gzip".
    Raises: TypeError: an argument has the wrong type.  ChildProcessError (of the reader): the command failed.
    """
    if not isinstance(left_cmd, str):
        raise WrongTypeError(f"left_cmd must be a string, not {type(left_cmd).__name__}")
    if not callable(parser):
        raise WrongTypeError(f"parser must be a callable object, not {type(parser).__name__}")
    if file_type not in ("plain", "gzip"):
        raise WrongTypeError(f"file_type {file_type} is not allowed: plain or gzip")

    def reader() -> Iterator[Any]:
        with subprocess.Popen(left_cmd.split(), bufsize=bufsize, stdout=subprocess.PIPE) as process:
            try:
                pieces = _pieces(process, bufsize, file_type)
                for part in _lines(pieces, line_break.encode()) if cut_lines else pieces:
                    yield from parser(part)
            finally:
                if process.poll() is None:
                    process.terminate()  # the program left the loop
                ended = process.wait()
        if ended > 0:
            raise ChildProcessError(f"the command of pipe_reader ended with status {ended}: {left_cmd}")

    return reader


def _pieces(process: subprocess.Popen[bytes], bufsize: int, file_type: str) -> Iterator[bytes]:
    unpack = zlib.decompressobj(32 + zlib.MAX_WBITS) if file_type == "gzip" else None
    assert process.stdout is not None
    while piece := process.stdout.read(bufsize):
        if unpack is None:
            yield piece
            continue
        while piece:  # at most bufsize bytes at a time, however well they are packed
            if unpacked := unpack.decompress(piece, bufsize):
                yield unpacked
            piece = unpack.unconsumed_tail
    process.wait()


def _lines(pieces: Iterable[bytes], line_break: bytes) -> Iterator[list[str]]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(line_break)
        yield [line.decode("utf-8", "surrogateescape") for line in whole]
    if rest:
        yield [rest.decode("utf-8", "surrogateescape")]


class _Ahead:
    """The samples of a reader, read by a daemon thread. Leaving the `with` block ends the thread."""

    def __init__(self, reader: Callable[[], Iterable[Any]], size: int) -> None:
        """Args: size: the number of samples that may wait; 0 and less: any number."""
        self._reader = reader
        self._waiting: queue.Queue[Any] = queue.Queue(size)
        self._left = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def __iter__(self) -> Iterator[Any]:
        """Yield the samples, then raise the exception of the reader, if it had one."""
        while (sample := self._waiting.get()) is not _END:
            yield sample
        if self._error:
            raise self._error

    def _read(self) -> None:
        try:
            for sample in self._reader():
                if not self._put(sample):
                    return
        except BaseException as error:  # a SystemExit of the reader belongs to the program, too
            self._error = error
        self._put(_END)

    def _put(self, sample: Any) -> bool:
        """Put a sample as soon as there is room; return False if the loop has ended."""
        while not self._left.is_set():
            try:
                self._waiting.put(sample, timeout=_WAIT)
            except queue.Full:
                continue
            return True
        return False
