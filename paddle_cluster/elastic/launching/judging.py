"""Decide whether a finished job has succeeded."""

from __future__ import annotations

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.elastic.constants import HOROVOD_FAILURE_WORDS
from paddle_cluster.elastic.membership.results import Results, describe_exit


class JobFailedError(RuntimeError):
    """A job has failed.

    Attributes: exit_code: exit code of the command that ran the job. The value is the exit code of the worker that
        failed first. It is 75 if a signal ended that worker, if the job was stopped with an error, or if no worker has
        failed.
    """

    def __init__(self, text: str, exit_code: int = LostPeerError.exit_code) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def judge(results: Results) -> None:
    """Check that a job has succeeded.

    Raises: JobFailedError: the job was stopped with an error, a worker has failed (the message names the first failure
        by time), or no worker has finished its work.
    """
    if results.error_message is not None:
        raise JobFailedError(results.error_message)
    failed = [(end, name, code) for name, (code, end) in results.worker_results.items() if code]
    if failed:
        _, name, code = min(failed)
        raise JobFailedError(
            f"{name} {'was ' if code < 0 else ''}{describe_exit(code)}, as the first of {len(failed)} workers that "
            f"have failed; look at its output (Horovod's message: {HOROVOD_FAILURE_WORDS})",
            code if code > 0 else LostPeerError.exit_code,
        )
    if not results.worker_results:
        raise JobFailedError("no worker has finished its work; look at the output of the workers")
