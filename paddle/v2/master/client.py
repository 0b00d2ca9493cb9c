"""The client of a master for programs that read records by themselves.

Source: spec/v2.md section 13.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from paddle_base.messages.errors import RequestRefusedError
from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from trainer.v2.jobs.membership import join_store
from trainer.v2.jobs.parts import read_pass

__all__ = ["client"]

_END_OF_PASS, _ERROR = -2, -1


class client:
    """A trainer's place in the job of a master. Numbers below 0 are errors, as in v0.11; the log has the text.

    Args: etcd_endpoints: "http://host:port,..." of etcd, or the path of the master's --store_dir.  timeout_sec,
        buf_size: without effect; records are read when they are requested.
    Raises: PeerUnreachableError: no master has answered within the flag `wait` of `paddle.init`.
    """

    def __init__(self, etcd_endpoints: str, timeout_sec: float, buf_size: int = 0) -> None:
        self._member = join_store(etcd_endpoints)
        self._records: Iterator[bytes] = iter(())

    def set_dataset(self, paths: str | Sequence[str]) -> int:
        """Offer the RecordIO files of some patterns as the data of the job. Return 0, or -1 after an error."""
        try:
            self._member.set_dataset(paths)
        except PaddleError as error:
            return _say(error)
        return 0

    def paddle_start_get_records(self, pass_id: int) -> None:
        """Begin to read the tasks of a pass."""
        self._records = read_pass(self._member, pass_id, bytes)

    def next_record(self) -> tuple[bytes | None, int]:
        """Return the next record and 0, (None, -2) at the end of the pass, or (None, -1) after an error.

        A task is finished when the record after its last one is requested.
        """
        try:
            return next(self._records), 0
        except StopIteration:
            return None, _END_OF_PASS
        except PaddleError as error:
            return None, _say(error)

    def request_save_model(self, trainer_id: Any, block_ms: int) -> int:
        """Return 1 if this trainer saves the model of the ended pass, 0 if another one does, and -1 after an error.

        Args: trainer_id: without effect; the master knows its trainers.  block_ms: milliseconds for the save, in which
            no other trainer saves.
        """
        try:
            return int(self._member.request_save(block_ms / 1000))
        except (PaddleError, RequestRefusedError) as error:
            return _say(error)

    def release(self) -> None:
        """Leave the job. The master gives this trainer's tasks to other trainers."""
        close = getattr(self._records, "close", None)
        if close is not None:
            close()
        self._member.leave()


def _say(error: Exception) -> int:
    glog.error(str(error))
    return _ERROR
