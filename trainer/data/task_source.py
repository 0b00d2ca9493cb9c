"""Read the samples of successive tasks of a master. A task names files of the list, or ranges of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError, MissingInputError
from trainer.arrays.arguments import Argument
from trainer.data.loading import OpenedProvider
from trainer.data.provider2 import CacheType
from trainer.data.source import DataSource, DataStreams


class TaskSource:
    """A source that reads one task at a time.

    No batch has samples of two tasks, and no sample is kept for another pass.

    Attributes: entries: the lines of the list file.

    Args: check: a function that is called repeatedly during a wait for the provider; an error that it raises ends the
        wait.
    Thread safety: only one thread may use the source.
    """

    def __init__(self, opened: OpenedProvider, streams: DataStreams, check: Callable[[], None]) -> None:
        self._opened, self._streams, self._check = opened, streams, check
        self._source: DataSource | None = None
        self.entries = opened.entries
        if opened.provider.cache == CacheType.CACHE_PASS_IN_MEM:
            opened.provider.cache = CacheType.NO_CACHE
            glog.warning(
                f"the data provider {opened.provider}: CACHE_PASS_IN_MEM has no effect with a master, because the "
                "next pass brings other tasks; the provider reads its data in every pass"
            )

    def start_task(self, files: Sequence[str], name: str) -> None:
        """Begin to read a task.

        Args: files: the task's files or ranges of records. name: the name of the task, for messages.
        """
        self.close()
        opened = self._opened
        self._source = DataSource(
            opened.provider,
            files,
            shuffled=opened.is_shuffled,
            streams=self._streams,
            check=self._check,
            list_name=name,
            constants=opened.constants,
        )
        self._source.start_pass()

    def look(self, size: int) -> None:
        """Read the first batch that there is, without keeping it, so that a fault of the provider is known.

        One bad file is no such fault, because the master gives up its task only.

        Args: size: the batch size.
        Raises: see `next_batch`: no entry has a batch.
        """
        first: DataError | MissingInputError | None = None
        for entry in self.entries:
            try:
                self.start_task([entry], entry)
                if self.next_batch(size) is not None:
                    return
            except (DataError, MissingInputError) as error:
                first = first or error
            finally:
                self.close()
        if first is not None:
            raise first

    def next_batch(self, size: int) -> tuple[dict[str, Argument], int] | None:
        """Return the next batch of the task and its size in units, or None at the end of the task.

        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid or larger than a
            batch.
        """
        return None if self._source is None else self._source.next_batch(size)

    def close(self) -> None:
        """Stop reading."""
        if self._source is not None:
            self._source.close()
            self._source = None
