"""The loop of `SGD.train`: passes, batches, and the events that the program's handler gets.

Source: spec/v2.md section 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, VolumeError
from paddle_base.runtime.interrupts import defer_interrupt
from trainer.data.checks import shorten
from trainer.evaluators import Accumulator
from trainer.session import BatchResult, Session
from trainer.telemetry.time_breakdown import DATA, OTHER
from trainer.training.position import Position
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.v2 import events
from trainer.v2.checkpoints import Checkpoints
from trainer.v2.errors import WrongTypeError
from trainer.v2.feeder import DataFeeder
from trainer.v2.jobs.parts import READING, Part
from trainer.v2.jobs.reports import Reports

if TYPE_CHECKING:
    from paddle_cluster.master.client import PassOver

Reader = Callable[[], Iterable[Any]]
Handler = Callable[[Any], object]
_NO_READER = "train_data_reader should be a function, which can return a iterator"
_NO_TASK = (
    "a synchronous training with the servers of a master trains tasks: read them by "
    "paddle.reader.creator.cloud_reader, or give the optimizer is_async=True"
)
_NO_MORE = object()


class TrainingLoop:
    """One call of `SGD.train`.

    Args: session: it is connected by `run`. handler: gets the events. metrics: returns the metrics of a sum.
        reports: are told what happens. leave: is called after each batch and its checkpoint, and may raise an error
        that ends the training.
    """

    def __init__(
        self,
        session: Session,
        feeder: DataFeeder,
        handler: Handler,
        metrics: Callable[[Accumulator], events.Metrics],
        checkpoints: Checkpoints,
        reports: Reports,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._feeder, self._handler, self._metrics = session, feeder, handler, metrics
        self._checkpoints, self._leave, self._machine = checkpoints, leave, events.Machine(session)
        self._reports = reports

    def run(self, reader: Reader, num_passes: int) -> None:
        """Train from the position of the session to the end of the passes, or of the master's job.

        Raises: see `SGD.train`.
        """
        member, end, over = next(iter(READING), None), num_passes, None
        if member is not None and self._checkpoints.is_on:
            raise ConfigError("checkpoint_dir: the servers of a job with a master write snapshots; leave it out")
        try:
            position = self._checkpoints.connect()
        except TaskTakenError as error:  # the job is over
            glog.info(str(error))
            return
        if member is not None:
            position.number = member.present_pass()
            end = min(member.trained_passes + num_passes, member.num_passes)
            if member.must_save(position.number - 1):  # no program has handled its end: those that trained it are lost
                self._end_pass(Position(position.number - 1), Accumulator(self._session.evaluators))
                member.settle()
        self._reports.begin(position, end)
        while position.number < end and (over is None or not over.is_last):
            over = self._run_pass(position, reader)
            number = position.number + 1 if over is None else over.next_pass
            position.begin_next_pass()
            position.number = number
            if member is not None:
                member.trained_passes = number
                member.settle()
            self._checkpoints.save_pass(position)
            if self._checkpoints.may_leave(is_saved=True):
                self._leave()
        if member is not None and position.number >= member.num_passes:
            _, over = member.take(position.number)  # only the end of the job tells which tasks were discarded
        if over is not None and over.discarded:
            raise DataError(over.discarded)

    def _run_pass(self, position: Position, reader: Reader) -> PassOver | None:
        """Train a pass, or the rest of it. Return the master's message about its end, if there is a master."""
        number, session = position.number, self._session
        whole = Accumulator(session.evaluators)
        self._handler(events.BeginPass(number))
        self._checkpoints.begin_pass(position, whole)
        self._reports.begin_pass(position, whole)
        session.updater.set_pass(number)
        session.start_pass(position.batches)
        over, goes_on, trained = None, True, position.batches
        while goes_on:
            with Part(number) as part:
                for batch in self._read(reader, part, number, trained):
                    self._run_batch(position, batch, part, whole)
            over, goes_on, trained = part.over, part.goes_on, 0
        if not whole.samples:
            glog.warning(f"pass {number}: the reader has yielded no batch, so nothing is trained")
        self._end_pass(position, whole)
        return over

    def _end_pass(self, position: Position, whole: Accumulator) -> None:
        """Fetch the values of the end of a pass, and let the handler test and save them."""
        number, session = position.number, self._session
        session.updater.set_pass(number)
        try:
            session.finish_pass(self._checkpoints.describe(position, whole))
            fetch_tables(session)
        except TaskTakenError as error:  # the job has ended: the other trainers have trained and saved its last pass
            glog.warning(f"the parameters are those of the last batch here, not of the end of pass {number}: {error}")
        self._reports.end_pass(position, whole)
        self._handler(events.EndPass(number, self._metrics(whole), self._machine))

    def _read(self, reader: Reader, part: Part, number: int, trained: int) -> Iterator[Any]:
        """Yield the batches after the first `trained` ones.

        Raises: DataError: there are fewer batches.
        """
        self._session.breakdown.switch(DATA)
        with part.guard(Exception):
            batches = read_batches(reader, f"pass {number}")
            count = sum(1 for _ in itertools.islice(batches, trained))
        if count < trained:
            raise DataError(
                f"the reader has yielded {count} batches, but {trained} of pass {number} are trained: the reader must "
                "yield the same batches again; or train with resume=False"
            )
        while True:
            with part.guard(Exception):
                self._session.breakdown.switch(DATA)
                batch = next(batches, _NO_MORE)
                self._session.breakdown.switch(OTHER)
            if batch is _NO_MORE:
                return
            yield batch

    def _run_batch(self, position: Position, batch: Any, part: Part, whole: Accumulator) -> None:
        place = position.number, position.batches
        self._handler(events.BeginIteration(*place))
        is_wanted = self._checkpoints.is_wanted(position.batches + 1)
        self._reports.begin_batch(position.batches)
        result, is_due = self._step(batch, place, part, is_wanted=is_wanted)
        part.samples += len(batch)
        position.batches += 1
        self._tell_end(position, result, whole)
        if is_due:
            self._checkpoints.save_inside(position, whole)
        if self._checkpoints.may_leave(is_saved=is_due):
            self._leave()

    def _tell_end(self, position: Position, result: BatchResult, whole: Accumulator) -> None:
        """Add the result of a batch, which `position` counts, to that of the pass; tell the handler and the reports."""
        place = position.number, position.batches - 1
        alone = Accumulator(self._session.evaluators)
        alone.add(*result)
        self._reports.count(position, whole, result)
        cost = result.cost / result.samples
        self._handler(events.EndIteration(*place, cost, self._metrics(alone), self._machine))

    def _step(self, batch: Any, place: tuple[int, int], part: Part, *, is_wanted: bool) -> tuple[BatchResult, bool]:
        """Return the result of a batch, and whether all trainers now make a checkpoint."""
        where = "pass {}, batch {}".format(*place)
        with part.guard(Exception):
            check_batch(batch, where)
            slots = self._feeder(batch, where)
        with defer_interrupt(), np.errstate(all="ignore"):  # Ctrl-C ends `train` between two steps
            try:
                with part.guard(DataError, MissingInputError, VolumeError):
                    result = self._session.compute(slots, len(batch), where)
                self._handler(events.EndForwardBackward(*place, self._machine))
                return result, self._session.update(len(batch), checkpoint=is_wanted)
            except TaskTakenError as error:
                if not part.goes_on:
                    raise ConfigError(_NO_TASK) from error
                raise


def check_batch(batch: Any, where: str) -> None:
    """Raises: DataError: a batch has no sample."""
    if not len(batch):
        raise DataError(f"{where} has no sample; a batch is a list of samples")


def fetch_tables(session: Session) -> None:
    """Fetch all rows of the tables (sparse_update) from the servers, which alone have the newest values of all rows."""
    if session.table.tables():
        with session.updater.averaged():
            pass


def read_batches(reader: Reader, where: str, first: int = 0) -> Iterator[Any]:
    """Yield the batches of a reader. Its error says which batch it was to give, counted from `first`.

    Raises: TypeError: the reader is no function, or returns no batches.
    """
    if not callable(reader):
        raise WrongTypeError(f"{_NO_READER}; it is {shorten(reader)}")
    batches = reader()
    if not isinstance(batches, Iterable):
        raise WrongTypeError(f"{_NO_READER}; it has returned {shorten(batches)}")
    iterator = iter(batches)
    for number in itertools.count(first):
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            error.add_note(f"{where}, batch {number}: the reader has raised {type(error).__name__}: {error}")
            raise
        yield batch
