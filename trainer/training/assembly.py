"""Assemble a job from the command line: first the config, then the parameters, the network and the data.

Unsupported features are refused before any data is read.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.saves import pass_name
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream, start_state
from trainer.data.loading import check_data, open_source
from trainer.data.source import BatchSource, DataStreams
from trainer.evaluators import make_evaluators
from trainer.evaluators.validation import make_validations
from trainer.flags import Values
from trainer.network.data_parallel import AnyNetwork, DataParallelNetwork
from trainer.network.several import list_networks
from trainer.session import Session, build_network, pool_of
from trainer.storage.damaged_saves import advising
from trainer.storage.job_inputs import (
    fill_parameters,
    read_config,
    read_copies,
    read_resumed,
    saves_model,
)
from trainer.storage.save_directory import SaveDirectory
from trainer.telemetry.description import describe_run
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.reporter import Reporter, find_target
from trainer.training.checkgrad import GradientChecking
from trainer.training.loop import BatchLoop, Training
from trainer.training.parts import Parts
from trainer.training.stopping import STOPPER
from trainer.training.testing import Testing
from trainer.training.timing import Timing
from trainer.updaters.local import LocalUpdater, Updater, leaving_after_errors
from trainer.updaters.optimizer_settings import (
    Sending,
    has_sparse_rows,
    read_optimization,
    read_sending,
    warn_of_settings,
)

if TYPE_CHECKING:
    from trainer.updaters.collective import CollectiveTrainers
    from trainer.updaters.parameter_servers import ParameterServers

SCRIPT_LIMIT_S = 5  # maximum seconds that a config script may still run after a signal


class Assembly:
    """Read the config, and build the parts of a job. `training`, `testing` or `gradient_checking` returns the job.

    This class builds a job whose trainers stay. A subclass for another kind of job has its own updater, its own source
    of training data, and its own start.

    Attributes: number: the number of this trainer, or None before a master has assigned one.
    """

    number: int | None
    _look: Callable[[], None] | None = None  # called during waits for data; None: `check` of the updater

    def __init__(self, flags: Values) -> None:
        self._flags = flags
        self.number = flags.trainer_id
        # The next two statements import modules of this project. They come before the directories of the config are on
        # the module path, so that no file in these directories can replace a module of this project.
        self._servers = self._make_servers()
        if self._keeps_records() and flags.trainer_id == 0:  # only the trainer that makes the report needs this module
            importlib.import_module("trainer.report")
        seed = flags.seed or int(time.time())
        if not flags.seed:
            glog.info(f"random number seed={seed}", at=AT["seed"])
        self._seed = seed
        STOPPER.limit(SCRIPT_LIMIT_S)
        with STOPPER:  # the error of a signal is held back, because an `except:` in the script could catch it
            self._config, self._path = read_config(flags)
        STOPPER.limit(0)
        self._is_training = flags.job in ("train", "checkgrad", "time")
        self._directory = SaveDirectory(flags, os.environ)
        self._optimization = read_optimization(self._config.opt_config, local=flags.local)
        self._table = ParameterTable(self._config.model_config.parameters, tables_first=not flags.local)
        model = self._config.model_config
        validations = make_validations(model.layers, flags.predict_file)
        self._evaluators = [*make_evaluators(model.evaluators), *validations]
        self._network = self._make_network()
        for data in (self._config.data_config, self._config.test_data_config):
            if data.type:
                check_data(data)

    # ----- The jobs

    def training(self) -> BatchLoop | None:
        """Connect the updater, and return the training, or the timing. Return None if the job is over.

        An error in the user's config is raised before this method waits for another program.
        """
        self._log_mode()
        updater = self._make_updater()
        parts = self._make_parts(updater, self._look or updater.check)
        warn_of_test_flags(self._flags, self._config)
        training = self._start(parts)
        if training is not None:
            place = training.place()  # it comes first in the record, and has the number of passes of a task job
            facts = place | describe_run(self._flags, self._config, self._table) | place
            training.parts.reporter.start(writes=not self._directory.holds_records, **facts)
        return training

    def gradient_checking(self) -> GradientChecking:
        """Return the session of the gradient check, which does not use parameter servers."""
        glog.info("trainer mode: Normal", at=AT["mode"])
        parts = self._make_parts()
        self._fill_parameters(parts)
        return GradientChecking(parts)

    def testing(self) -> Testing:
        """Return the test session."""
        glog.info("trainer: in testing mode", at=AT["testing"])
        is_sparse = not self._flags.local and self._config.opt_config.use_sparse_remote_updater
        mode = "SgdSparseCpuTraining" if is_sparse or self._flags.trainer_count > 1 else "Testing"
        glog.info(f"trainer mode: {mode}", at=AT["testing mode"])
        parts = self._make_parts()
        warn_of_test_flags(self._flags, self._config)
        return Testing(parts)

    def end(self) -> None:
        """Wait for started servers, and release the save directory."""
        if isinstance(self._network, DataParallelNetwork):
            self._network.close()
        if self._servers is not None:
            self._servers.end()
        self._directory.leave()

    # ----- What the kinds of jobs do in their own ways

    def _make_servers(self) -> ParameterServers | CollectiveTrainers | None:
        return None if self._flags.local else _import_servers(self._flags.collective)(self._flags)

    def _make_updater(self) -> Updater:
        sending = Sending()
        if self._servers is not None:
            read_sending(self._config.opt_config, trainers=2)  # a wrong setting is known before a server is asked
            self._servers.find_trainers()
        if not self._flags.local:
            sending = read_sending(self._config.opt_config, trainers=self._flags.num_gradient_servers)
        self._warn_of_settings(sending)
        pool = pool_of(self._network)
        if self._servers is None:
            return LocalUpdater(self._table, self._optimization, log_clipping=self._flags.log_clipping, pool=pool)
        return self._servers.make_updater(self._config.model_config, self._table, self._optimization, sending, pool)

    def _open_training(self, data: DataConfig, stream: Stream, check: Callable[[], None]) -> BatchSource | None:
        """Open the training data. None: the training does not read it by passes."""
        return self._open_source(data, stream, check, is_train=True)

    def _keeps_records(self) -> bool:
        flags = self._flags
        wants = flags.report if "report" in flags.given else bool(os.environ.get("PADDLE_OUTPUT"))
        return wants and flags.job == "train" and flags.num_passes > 0

    def _make_reporter(self, save_dir: str) -> Reporter:
        flags = self._flags
        target = find_target(save_dir, flags.trainer_id, os.environ) if self._keeps_records() else None
        return Reporter(target, flags.start_pass + flags.num_passes, flags.progress_period)

    def _start(self, parts: Parts) -> BatchLoop | None:
        """Fill the parameters, prepare the save directory, and connect the updater."""
        restored = read_resumed(self._flags, self._table)
        model = ""
        if restored is None:
            elsewhere = [] if parts.save_tables is None else [one.name for one in self._table.tables()]
            model = self._fill_parameters(parts, elsewhere)
        # the directory is made after the model has been loaded, so that an error in loading leaves no directory
        if saves_model(self._flags):
            self._directory.prepare(parts.save_dir, self._config.init_model_path)
        parts = replace(parts, begin=lambda: self._begin(parts.reporter))
        training = (Timing if self._flags.job == "time" else Training)(parts, STOPPER)
        with leaving_after_errors(parts.session.updater):
            with advising(self._flags.resume_from, os.environ):
                own = parts.session.connect(restored)
            if self._servers is not None and model:  # the servers load the tables of the model
                self._servers.load_tables(model)
            if isinstance(training, Training) and self._flags.resume_from:
                training.resume(own)
        return training

    # ----- Parts

    def _log_mode(self) -> None:
        if self._flags.local and self._config.opt_config.use_sparse_remote_updater:
            glog.info("ignore sparse_remote_update=true due to  --local=true")
        is_sparse = has_sparse_rows([parameter.spec() for parameter in self._table]) or bool(self._table.tables())
        glog.info(f"trainer mode: {'SgdSparseCpuTraining' if is_sparse else 'Normal'}", at=AT["mode"])
        if self._table.tables() and "use_old_updater" not in self._flags.given:
            glog.info(
                "Sgd sparse training can not work with ConcurrentRemoteParameterUpdater, automatically reset "
                "--use_old_updater=true",
                at=AT["old updater"],
            )

    def _make_network(self) -> AnyNetwork:
        flags = self._flags
        network = build_network(
            self._config.model_config,
            self._table,
            seed=self._seed,
            threads=flags.trainer_count,
            use_global_seed=flags.thread_local_rand_use_global_seed,
        )
        if flags.trainer_count == 1 and flags.prev_batch_state and flags.job in ("train", "test"):
            network.states.begin()
        return network

    def _warn_of_settings(self, sending: Sending) -> None:
        specs = [parameter.spec() for parameter in self._table]
        warn_of_settings(self._config.opt_config, specs, self._optimization, sending, local=self._flags.local)

    def _make_parts(self, updater: Updater | None = None, check: Callable[[], None] = lambda: None) -> Parts:
        flags, config = self._flags, self._config
        stream = Stream(start_state(self._seed, flags.thread_local_rand_use_global_seed))
        session = Session(
            self._network,
            self._evaluators,
            stream,
            updater,
            shows_layers=flags.show_layer_stat,
            logs_clipping=flags.log_error_clipping,
        )
        data, test_data = config.data_config, config.test_data_config
        train = self._open_training(data, stream, check) if self._is_training and data.type else None
        test = self._open_source(test_data, stream, check, is_train=False) if test_data.type else None
        reporter = self._make_reporter(flags.save_dir or config.save_dir)
        return Parts(
            flags=flags,
            session=session,
            batch_size=config.opt_config.batch_size,
            train=train,
            test=test,
            configs=read_copies(self._path, config, self._table),
            save_dir=flags.save_dir or config.save_dir,
            averages=config.opt_config.average_window > 0,
            save_tables=None if self._servers is None else self._servers.save_tables,
            reporter=reporter,
            data_text=describe_data(config.data_config),
        )

    def _begin(self, reporter: Reporter) -> None:
        """Move the passes and records of an earlier run away, and begin to write the records of this run."""
        if not self._directory.has_earlier:
            return
        holds_records = self._directory.holds_records
        with STOPPER:  # a signal must not interrupt the move
            self._directory.begin()
            if holds_records:
                reporter.write()

    def _fill_parameters(self, parts: Parts, elsewhere: Sequence[str] = ()) -> str:
        previous = parts.shown_directory(pass_name(self._flags.start_pass - 1))
        return fill_parameters(self._flags, self._config, self._table, parts.session.stream, previous, elsewhere)

    def _open_source(
        self, data: DataConfig, stream: Stream, check: Callable[[], None], *, is_train: bool
    ) -> BatchSource:
        log_providers(data)
        source = open_source(
            data,
            self._list_inputs(),
            is_train=is_train,
            streams=self._make_streams(stream),
            check=check,
            shuffles=is_train,
            is_own=bool(self._path),
        )
        if not is_train and self._flags.job == "train":
            source.look()  # the first test follows a whole pass
        return source

    def _list_inputs(self) -> list[dict[str, int]]:
        """Return {data layer: size} in input order, for each network of the model."""
        model = self._config.model_config
        sizes = {layer.name: layer.size for layer in model.layers}
        return [{name: sizes[name] for name in one.input_layer_names} for one in list_networks(model)]

    def _make_streams(self, picking: Stream) -> DataStreams:
        """Return the random streams of a data source, whose samples are picked with the stream `picking`."""
        return DataStreams(picking, mixing=Stream(self._seed))


def _import_servers(is_collective: bool) -> type[ParameterServers] | type[CollectiveTrainers]:
    """Return the class for parameter servers, or for all-reduce.

    The class is not imported at the top of this file, because a local run does not need its modules. Their import takes
    73 ms of CPU time, in addition to 600 ms for all other modules (nine runs of `import
    trainer.updaters.parameter_servers` after `import trainer.training.assembly`).
    """
    if is_collective:
        from trainer.updaters.collective import CollectiveTrainers

        return CollectiveTrainers
    from trainer.updaters.parameter_servers import ParameterServers

    return ParameterServers


def log_providers(data: DataConfig) -> None:
    """Log the names of the providers of a data configuration."""
    for one in [data, *data.sub_data_configs]:
        if one.load_data_module:
            glog.info(f"loading dataprovider {one.load_data_module}::{one.load_data_object}", at=AT["provider"])


def describe_data(data: DataConfig) -> str:
    """Return what a user can check if a data configuration has no sample."""
    if not data.files or not data.load_data_object:
        return "train_list and its files"
    return f"{data.files}, and what {data.load_data_module}::{data.load_data_object} yields for the files that it names"


def warn_of_test_flags(flags: Values, config: TrainerConfig) -> None:
    """Log a warning for each given test flag that does not do what its name says."""
    if "test_period" in flags.given:
        glog.warning(
            "--test_period: every test uses all test data; a test follows every pass and, with a positive number "
            "N, also every N batches",
            at=AT["test_period"],
        )
    if flags.average_test_period and not config.opt_config.average_window:
        glog.warning(
            "--average_test_period has no effect without settings(model_average=ModelAverage(average_window=...))"
        )
    if flags.test_all_data_in_one_period:
        glog.warning(
            "--test_all_data_in_one_period was deprecated, since we will always do test on all test set ",
            at=AT["test_all_data"],
        )
