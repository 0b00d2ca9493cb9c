"""From the command line to a session: config message, network, parameters, data, updater, in the legacy's order.

Everything that is not supported yet is refused before any data is read.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proto.DataConfig_pb2 import DataConfig
from proto.TrainerConfig_pb2 import TrainerConfig
from pserver import glog
from pserver.crew import ALONE
from pserver.errors import ConfigError
from pserver.snapshot import Captured
from trainer.checkgrad import GradientChecking
from trainer.checkpoint import read_checkpoint
from trainer.compat import use_python_path
from trainer.config import parse_config
from trainer.data.loading import check_data, open_source
from trainer.data.source import DataSource
from trainer.delta_updater import DeltaUpdater
from trainer.description import describe_run
from trainer.evaluators import make_evaluators
from trainer.flags import Values, services
from trainer.legacy import AT
from trainer.model_files import pass_name, prepare_save_directory
from trainer.models import find_config, find_merged_config, load_model, naming_modules
from trainer.network import Network
from trainer.optimization import Sending, has_sparse_rows, list_oddities, read_optimization, read_sending
from trainer.own_servers import OwnServer
from trainer.parameters import DenseParameters, ParameterTable
from trainer.remote_updater import RemoteUpdater
from trainer.reporter import Reporter, find_target
from trainer.rng import Stream, share_state, start_state
from trainer.session import Parts, Training
from trainer.shares import AnyNetwork, Shares
from trainer.stopping import STOPPER
from trainer.testing import Testing
from trainer.timing import Timing
from trainer.updater import LocalUpdater, Updater

if TYPE_CHECKING:
    from pserver.client import Client
    from pserver.row_client import RowClient

SWITCH_INTERVAL_S = 0.0005  # a thread that is back from a product waits so long for its turn; by default ten times that
SCRIPT_LIMIT_S = 5  # a signal waits so long for the end of a config script
CONNECT_TIMEOUT_S = 60.0  # of a start by hand, before the servers maybe


def read_config(flags: Values) -> tuple[TrainerConfig, str]:
    """Return the message of the config, and the path of its script; "" if the message came with a merged model.

    Raises: MissingInputError: if there is no config.  ConfigError, DataError: if it is wrong.
    """
    use_python_path(flags.python_path)
    merged = find_merged_config(flags.config, flags.init_model_path)
    if merged is not None:
        if flags.config_args:
            glog.warning("--config_args has no effect: the config comes with the merged model; or give --config")
        return merged, ""
    first = flags.test_pass if flags.job == "test" else flags.start_pass - 1
    path = find_config(flags.config, flags.init_model_path, flags.save_dir, first)
    own = {
        "trainer_id": flags.trainer_id,
        "local": int(flags.local),
        "with_cost": int(flags.with_cost),
        "use_gpu": 0,
        "parallel_nn": 0,
        "cudnn_version": 0,
    }
    items = [f"{name}={value}" for name, value in own.items()]
    with naming_modules(flags.config, path):
        return parse_config(path, ",".join([*items, *filter(None, [flags.config_args])])), path


class Assembly:
    """Reads the config and builds what a session needs; `training` or `testing` makes the session."""

    def __init__(self, flags: Values) -> None:
        self._flags = flags
        self._server: OwnServer | None = None
        self._saved_by_servers: RowClient | None = None  # the connection to the tables that servers load and save
        self._load_tables_from = ""
        if not flags.local:
            # before the config's directories come on the module path; only here, because the network library makes
            # the start of a local run a quarter longer
            importlib.import_module("pserver.client")
        if self._keeps_records() and flags.trainer_id == 0:  # who makes the report; likewise
            importlib.import_module("trainer.report")
        seed = flags.seed or int(time.time())
        if not flags.seed:
            glog.info(f"random number seed={seed}", at=AT["seed"])
        self._seed = seed
        STOPPER.limit(SCRIPT_LIMIT_S)
        with STOPPER:  # an `except:` of the script would swallow what a signal raises
            self._config, self._path = read_config(flags)
        STOPPER.limit(0)
        self._is_training = flags.job in ("train", "checkgrad", "time")
        self._is_saving = flags.job == "train" and flags.trainer_id == 0 and flags.num_passes > 0
        self._optimization = read_optimization(self._config.opt_config, local=flags.local)
        self._table = ParameterTable(self._config.model_config.parameters, tables_first=not flags.local)
        self._evaluators = make_evaluators(self._config.model_config.evaluators)
        self._network = self._make_network()
        for data in (self._config.data_config, self._config.test_data_config):
            if data.type:
                check_data(data)

    def training(self) -> tuple[Training, Updater]:
        """Return the session that trains, or times training, and its updater, which is connected already."""
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
        updater = self._make_updater()
        parts = self._make_parts(updater.check)
        self._warn_of_test_flags()
        restored = self._read_checkpoint()
        if restored is None:
            self._fill_parameters(parts)
        if self._is_saving:  # a model that cannot be loaded leaves no directory
            prepare_save_directory(parts.save_dir)
        session = (Timing if self._flags.job == "time" else Training)(parts, updater, STOPPER)
        self._connect(session, updater, restored)
        parts.reporter.start(**session.place(), **describe_run(self._flags, self._config, self._table))
        return session, updater

    def _read_checkpoint(self) -> Captured | None:
        """Return what the checkpoint to go on from has; the other trainers get theirs from trainer 0."""
        if not self._flags.resume_from or self._flags.trainer_id != 0:
            return None
        glog.info(f"Loading the checkpoint {self._flags.resume_from}")
        restored = read_checkpoint(Path(self._flags.resume_from), self._table)
        made_by, number = len(restored.trainers), 1 if self._flags.local else self._flags.num_gradient_servers
        if made_by != number:
            raise ConfigError(
                f"the checkpoint {self._flags.resume_from} was made by {made_by} trainer{'s' * (made_by != 1)}, "
                f"this job has {number}: go on with as many, or from the parameters of a pass alone: "
                "--init_model_path=<save_dir>/pass-*"
            )
        return restored

    def gradient_checking(self) -> GradientChecking:
        """Return the job that checks gradients; parameter servers have no part in it."""
        glog.info("trainer mode: Normal", at=AT["mode"])
        parts = self._make_parts(lambda: None)
        self._fill_parameters(parts)
        return GradientChecking(parts)

    def end(self) -> None:
        """Wait for what was started beside the session."""
        if isinstance(self._network, Shares):
            self._network.close()
        if self._server is not None:
            self._server.end()

    def testing(self) -> Testing:
        """Return the test session."""
        glog.info("trainer: in testing mode", at=AT["testing"])
        is_sparse = not self._flags.local and self._config.opt_config.use_sparse_remote_updater
        mode = "SgdSparseCpuTraining" if is_sparse or self._flags.trainer_count > 1 else "Testing"
        glog.info(f"trainer mode: {mode}", at=AT["testing mode"])
        parts = self._make_parts(lambda: None)
        self._warn_of_test_flags()
        return Testing(parts)

    def _make_network(self) -> AnyNetwork:
        model, flags = self._config.model_config, self._flags
        if flags.trainer_count == 1:
            return Network(model, self._table)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        states = (
            share_state(self._seed, number, flags.thread_local_rand_use_global_seed)
            for number in range(flags.trainer_count)
        )
        return Shares(model, self._table, [Stream(state) for state in states])

    def _make_updater(self) -> Updater:
        specs = [parameter.spec() for parameter in self._table]
        algorithm = self._config.opt_config.algorithm
        sending = Sending()
        if not self._flags.local:
            sending = read_sending(self._config.opt_config, trainers=self._flags.num_gradient_servers)
        for sentence in list_oddities(
            specs, self._optimization, local=self._flags.local, algorithm=algorithm, sending=sending
        ):
            glog.warning(sentence)
        if self._flags.local:
            crew = self._network.crew if isinstance(self._network, Shares) else ALONE
            return LocalUpdater(self._table, self._optimization, log_clipping=self._flags.log_clipping, crew=crew)
        from pserver.client import Client, read_environment
        from pserver.nics import find_own_addresses

        if self._flags.start_pserver:
            self._server = OwnServer(self._flags)
        job = read_environment(os.environ)
        options: dict[str, Any] = {
            "trainer_id": self._flags.trainer_id,
            "num_trainers": self._flags.num_gradient_servers,
            "job": job.job,
            "attempt": job.attempt,
            "secret": job.secret,
            "own_addresses": find_own_addresses(self._flags.nics if "nics" in self._flags.given else ""),
            "peer_timeout": job.peer_timeout,
            # the launcher has waited for the servers already: one that is silent now is lost
            "connect_timeout": job.peer_timeout if job.attempt else CONNECT_TIMEOUT_S,
        }
        client = Client(services(self._flags), **options)
        if self._flags.loadsave_parameters_in_pserver and not self._table.tables():
            glog.warning(
                "--loadsave_parameters_in_pserver: no parameter has sparse_update; as in the original, trainer 0 saves "
                "the others"
            )
        if self._table.tables():
            return self._make_tables_updater(client, sending, options)
        if sending.batches_per_send == 1:
            return RemoteUpdater(self._table, self._optimization, client, batches_per_get=sending.batches_per_get)
        return DeltaUpdater(
            self._table,
            self._optimization,
            sending,
            client,
            trainers=self._flags.num_gradient_servers,
            is_first=self._flags.trainer_id == 0,
            crew=self._network.crew if isinstance(self._network, Shares) else ALONE,
        )

    def _make_tables_updater(self, client: Client, sending: Sending, options: Mapping[str, Any]) -> Updater:
        """Return the updater of parameters of which some are tables.

        Raises: ConfigError: if the servers have no ports for them, or cannot do what the config says of them.
        """
        from pserver.row_client import RowClient
        from trainer.remote_tables import SPARSE_PORTS, RemoteTables, TablesUpdater

        if not self._flags.ports_num_for_sparse:
            names = ", ".join(parameter.name for parameter in self._table.tables())
            raise ConfigError(
                f"sparse_update of {names} needs sparse ports, and --ports_num_for_sparse is 0: {SPARSE_PORTS}; or "
                "leave sparse_update out of its ParamAttr"
            )
        if sending.batches_per_send > 1:
            raise ConfigError(
                "settings: num_batches_per_send_parameter over 1 with sparse_update on parameter servers is not "
                "supported yet; leave one of them out"
            )
        rows = RowClient(services(self._flags, sparse=True), **options)
        if self._flags.loadsave_parameters_in_pserver:
            self._saved_by_servers = rows
        tables = RemoteTables(self._config.model_config, self._table, self._optimization, rows)
        dense = DenseParameters(self._table)
        updater = RemoteUpdater(dense, self._optimization, client, batches_per_get=sending.batches_per_get)
        return TablesUpdater(updater, tables)

    def _connect(self, session: Training, updater: Updater, restored: Captured | None) -> None:
        try:
            own = updater.connect(restored)
            if self._saved_by_servers is not None and self._load_tables_from and self._flags.trainer_id == 0:
                self._saved_by_servers.load(self._load_tables_from)
            if self._flags.resume_from:
                session.resume(own)
        except BaseException as error:
            updater.abort(str(error) or type(error).__name__)
            raise

    def _make_parts(self, check: Callable[[], None]) -> Parts:
        flags, config = self._flags, self._config
        stream = Stream(start_state(self._seed, flags.thread_local_rand_use_global_seed))
        train = self._open(config.data_config, stream, check, is_train=True) if self._is_training else None
        test = self._open(config.test_data_config, stream, check, is_train=False)
        return Parts(
            flags=flags,
            batch_size=config.opt_config.batch_size,
            network=self._network,
            table=self._table,
            evaluators=self._evaluators,
            stream=stream,
            train=train,
            test=test,
            configs=self._read_copies(),
            save_dir=flags.save_dir or config.save_dir,
            averages=config.opt_config.average_window > 0,
            save_tables=None if self._saved_by_servers is None else self._saved_by_servers.save,
            reporter=self._make_reporter(flags.save_dir or config.save_dir),
        )

    def _keeps_records(self) -> bool:
        flags = self._flags
        wants = flags.report if "report" in flags.given else bool(os.environ.get("PADDLE_OUTPUT"))
        return wants and flags.job == "train" and flags.num_passes > 0

    def _make_reporter(self, save_dir: str) -> Reporter:
        flags = self._flags
        target = find_target(save_dir, flags.trainer_id, os.environ) if self._keeps_records() else None
        return Reporter(target, flags.start_pass + flags.num_passes, flags.progress_period)

    def _open(
        self, data: DataConfig, stream: Stream, check: Callable[[], None], *, is_train: bool
    ) -> DataSource | None:
        if not data.type:
            return None
        glog.info(f"loading dataprovider {data.load_data_module}::{data.load_data_object}", at=AT["provider"])
        model = self._config.model_config
        sizes = {layer.name: layer.size for layer in model.layers}
        # picking among several list entries has a stream of its own, so that its draws do not depend on timing
        return open_source(
            data,
            {name: sizes[name] for name in model.input_layer_names},
            is_train=is_train,
            stream=stream,
            mixing=Stream(self._seed),
            check=check,
            shuffles=is_train,
        )

    def _read_copies(self) -> dict[str, bytes]:
        """Return the config script and those it imported, as they are now: they are copied into every save.

        A config of a merged model has no script.

        Raises: ConfigError: a parameter's file would have the same name.
        """
        if not self._path:
            return {}
        copies = {Path(self._path).name: Path(self._path).read_bytes()}
        for path in map(Path, self._config.config_files):
            if path.is_file():
                copies.setdefault(path.name, path.read_bytes())
        taken = next((parameter.name for parameter in self._table if parameter.name in copies), None)
        if taken is not None:
            raise ConfigError(
                f"parameter {taken!r} cannot be saved: the config's file of that name is copied into every save; "
                "rename the layer or the ParamAttr"
            )
        return copies

    def _warn_of_test_flags(self) -> None:
        if "test_period" in self._flags.given:
            glog.warning(
                "--test_period: every test takes all test data; a positive number tests also after every "
                "so many batches, 0 after every pass only",
                at=AT["test_period"],
            )
        if self._flags.average_test_period and not self._config.opt_config.average_window:
            glog.warning(
                "--average_test_period has no effect without settings(model_average=ModelAverage(average_window=...))"
            )
        if self._flags.test_all_data_in_one_period:
            glog.warning(
                "--test_all_data_in_one_period was deprecated, since we will always do test on all test set ",
                at=AT["test_all_data"],
            )

    def _fill_parameters(self, parts: Parts) -> None:
        flags = self._flags
        model = flags.init_model_path or self._config.init_model_path
        needs_done = not model and flags.start_pass > 0
        if needs_done:
            model = parts.shown_directory(pass_name(flags.start_pass - 1))
        if model:
            elsewhere = [] if self._saved_by_servers is None else [one.name for one in self._table.tables()]
            load_model(
                model,
                self._table,
                flags.load_missing_parameter_strategy,
                parts.stream,
                needs_done=needs_done,
                elsewhere=elsewhere,
            )
            self._load_tables_from = str(Path(model).resolve()) if elsewhere else ""
        else:
            glog.info("Initing parameters..", at=AT["init"])
            self._table.randomize(parts.stream)
            glog.info("Init parameters done.", at=AT["init done"])
