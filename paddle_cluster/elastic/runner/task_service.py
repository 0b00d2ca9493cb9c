"""The service of a task that checks the network for a driver. Names are those of `horovod.runner.task.task_service`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle_cluster.elastic.runner.common import task_service
from paddle_cluster.elastic.runner.common.timeout import Timeout


class TaskToTaskAddressCheckFinishedSignal:
    """Reports that a task has checked the addresses of another task."""

    def __init__(self, index: int) -> None:
        self.index = index


class TaskToTaskAddressCheckFinishedSignalResponse:
    """The answer, which contains the index of the task."""

    def __init__(self, index: int) -> None:
        self.index = index


class HorovodRunTaskService(task_service.BasicTaskService):
    """A `BasicTaskService` whose name contains the index of the task."""

    NAME_FORMAT = "horovod task service #%d"

    def __init__(self, index: int, key: bytes, nics: Collection[str] | None) -> None:
        self.index = index
        self._is_checked = False
        super().__init__(self.NAME_FORMAT % index, index, key, nics)

    def _handle(self, req: Any, client_address: tuple[str, int]) -> Any:
        if not isinstance(req, TaskToTaskAddressCheckFinishedSignal):
            return super()._handle(req, client_address)
        with self._wait_cond:
            self._is_checked = True
            self._wait_cond.notify_all()
        return TaskToTaskAddressCheckFinishedSignalResponse(self.index)

    def wait_for_task_to_task_address_check_finish_signal(self, timeout: Timeout) -> None:
        """Wait until a client reports that the check has ended. Raises: TimeoutException: no report has come."""
        with self._wait_cond:
            while not self._is_checked:
                self._wait_cond.wait(timeout.remaining())
                timeout.check_time_out_for("the check of the addresses of another task")


class HorovodRunTaskClient(task_service.BasicTaskClient):
    """The client of a `HorovodRunTaskService`."""

    def __init__(
        self,
        index: int,
        task_addresses: Mapping[str, Sequence[tuple[str, int]]],
        key: bytes,
        verbose: int,
        match_intf: bool = False,
        attempts: int = 3,
    ) -> None:
        name = HorovodRunTaskService.NAME_FORMAT % index
        super().__init__(name, task_addresses, key, verbose, match_intf=match_intf, attempts=attempts)
        self.index = index

    def task_to_task_address_check_completed(self) -> int:
        """Report to the service that the check has ended; return the index of the task."""
        index: int = self._send(TaskToTaskAddressCheckFinishedSignal(self.index)).index
        return index
