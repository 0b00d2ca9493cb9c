"""A trainer's use of parameter servers: the connections, the updaters, and the server of --start_pserver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.network.interfaces import find_own_addresses
from paddle_base.runtime.processor.thread_pool import ThreadPool
from pserver.client.client import Client, count_trainers, read_environment
from pserver.client.sparse_client import SparseClient
from pserver.optim.settings import Optimization
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.parameters import ParameterTable
from trainer.flags import Values, services
from trainer.storage.model_files import SaveTables
from trainer.updaters.delta import DeltaUpdater
from trainer.updaters.local import Updater
from trainer.updaters.optimizer_settings import Sending
from trainer.updaters.own_server import OwnServer
from trainer.updaters.remote import RemoteUpdater
from trainer.updaters.tables import SPARSE_PORTS, TableRows, TablesUpdater

# maximum seconds to connect to the servers, which is long, because a user may start the trainer before the servers
CONNECT_TIMEOUT_S = 60.0


class ParameterServers:
    """Create the updater of a job that trains with parameter servers."""

    def __init__(self, flags: Values) -> None:
        self._flags = flags
        self._own_server: OwnServer | None = None
        self._saved_by_servers: SparseClient | None = None  # the connection to the servers that load and save tables

    @property
    def save_tables(self) -> SaveTables | None:
        """The function that makes the servers save the tables; None if trainer 0 saves the tables."""
        return None if self._saved_by_servers is None else self._saved_by_servers.save

    def load_tables(self, model: str) -> None:
        """Make the servers load the tables of a model, if the servers load and save the tables."""
        if self._saved_by_servers is not None and self._flags.trainer_id == 0:
            self._saved_by_servers.load(model)

    def find_trainers(self) -> None:
        """Take the number of trainers from the first server, if the flags do not give it.

        v0.10's trainer does not need --num_gradient_servers, and the tutorial's script gives it to the server only.

        Raises: ConfigError: the server has no place for this trainer. PeerUnreachableError: see `count_trainers`.
        """
        flags = self._flags
        if "num_gradient_servers" in flags.given or flags.start_pserver:  # a started server gets the trainer's flags
            return
        host, port = services(flags)[0]
        # 0 is the number of a server with a store, which refuses this trainer when it joins
        number = count_trainers((host, port), **self._read_options()) or 1
        if flags.trainer_id >= number:
            raise ConfigError(
                f"--trainer_id is {flags.trainer_id}, but pserver {host}:{port} was started with "
                f"--num_gradient_servers={number}, for trainers 0 to {number - 1}: correct one of them"
            )
        flags.number_trainer(flags.trainer_id, number)

    def make_updater(
        self, model: ModelConfig, table: ParameterTable, optimization: Optimization, sending: Sending, pool: ThreadPool
    ) -> Updater:
        """Return the updater for the config. The updater is not connected yet.

        Raises: ConfigError: the servers have no ports for tables, or do not support the config.
        """
        flags = self._flags
        if flags.start_pserver:
            self._own_server = OwnServer(flags)
        options = self._read_options()
        client = Client(services(flags), **options)
        if table.tables():
            rows = self._make_sparse_client(table, options)
            tables = TableRows(model, table, optimization)
            dense = self._make_dense(DenseParameters(table), optimization, sending, client, pool)
            return TablesUpdater(dense, tables, rows, dense_services=len(services(flags)), shrink=sending.shrink)
        if flags.loadsave_parameters_in_pserver:
            glog.warning(
                "--loadsave_parameters_in_pserver: no parameter has sparse_update; as in the original, trainer 0 saves "
                "the parameters"
            )
        return self._make_dense(table, optimization, sending, client, pool)

    def _make_dense(
        self,
        table: ParameterTable | DenseParameters,
        optimization: Optimization,
        sending: Sending,
        client: Client,
        pool: ThreadPool,
    ) -> Updater:
        """Return the updater of the parameters that are not tables."""
        if sending.batches_per_send == 1:
            return RemoteUpdater(table, optimization, client, batches_per_get=sending.batches_per_get)
        return DeltaUpdater(
            table,
            optimization,
            sending,
            client,
            trainers=self._flags.num_gradient_servers,
            is_first=self._flags.trainer_id == 0,
            pool=pool,
        )

    def _read_options(self) -> dict[str, Any]:
        """Return the options of every client, from the flags and the environment."""
        flags = self._flags
        job = read_environment(os.environ)
        own = find_own_addresses(flags.nics if "nics" in flags.given else "")
        return {
            "trainer_id": flags.trainer_id,
            "num_trainers": flags.num_gradient_servers,
            "job": job.job,
            "attempt": job.attempt,
            "secret": job.secret,
            "own_addresses": own,
            "source": own[0] if len(own) == 1 else "",
            "peer_timeout": job.peer_timeout,
            # in an attempt of a job, the launcher has already waited for the servers, so a silent server counts as lost
            "connect_timeout": job.peer_timeout if job.attempt else CONNECT_TIMEOUT_S,
        }

    def _make_sparse_client(self, table: ParameterTable, options: Mapping[str, Any]) -> SparseClient:
        """Return the client of the tables. Their rows are exchanged in every batch, even if
        num_batches_per_send_parameter > 1.
        """
        if not self._flags.ports_num_for_sparse:
            names = ", ".join(parameter.name for parameter in table.tables())
            raise ConfigError(
                f"sparse_update of {names} needs sparse ports, and --ports_num_for_sparse is 0: {SPARSE_PORTS}; or "
                "leave sparse_update out of its ParamAttr"
            )
        rows = SparseClient(services(self._flags, sparse=True), **options)
        if self._flags.loadsave_parameters_in_pserver:
            self._saved_by_servers = rows
        return rows

    def end(self) -> None:
        """Wait for the server that this trainer has started."""
        if self._own_server is not None:
            self._own_server.end()
