"""Tables on servers beside dense parameters: where both lie in the trainer, and who is asked what in which order."""

import contextlib

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError, DataError, PeerUnreachableError
from pserver.optim.settings import Optimization
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.arguments import Argument
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.parameters import ParameterTable
from trainer.updaters.tables import TableRows, TablesUpdater

CONFIGS = [
    ParameterConfig(name="w", size=6, dims=[2, 3]),
    ParameterConfig(name="emb", size=20, dims=[10, 2], sparse_update=True, sparse_remote_update=True),
    ParameterConfig(name="mean", size=2, dims=[1, 2], is_static=True),
    ParameterConfig(name="bags", size=8, dims=[4, 2], sparse_remote_update=True),
    ParameterConfig(name="b", size=3, dims=[1, 3]),
]


def model():
    config = ModelConfig(type="nn")
    config.layers.add(name="word", type="data", size=10)
    mixed = config.layers.add(name="e", type="mixed", size=2)
    given = mixed.inputs.add(input_layer_name="word", input_parameter_name="emb")
    given.proj_conf.type, given.proj_conf.input_size, given.proj_conf.output_size = "table", 10, 2
    return config


class Recorder:
    """Stands for a client, or for the updater of the dense parameters; writes down what it is asked."""

    def __init__(self, log, name, **answers):
        self._log, self._name, self._answers = log, name, answers

    def __getattr__(self, asked):
        def answer(*arguments, **more):
            self._log.append(f"{self._name} {asked}")
            self._answers.setdefault("seen", {})[asked] = arguments
            self._answers.setdefault("named", {})[asked] = more
            given = self._answers.get(asked)
            if isinstance(given, Exception):
                raise given
            return given

        return answer

    @contextlib.contextmanager
    def averaged(self):
        self._log.append(f"{self._name} averaged")
        yield


def make(**answers):
    log, table = [], ParameterTable(CONFIGS, tables_first=True)
    client, dense = Recorder(log, "tables", count_services=2, **answers), Recorder(log, "dense", **answers)
    rows = TableRows(model(), table, Optimization())
    return log, table, client, TablesUpdater(dense, rows, client, dense_services=1)


def test_fetched_rows_of_tables_with_l1_shrink():
    """The setting shrink_parameter_value had no effect."""
    configs = [ParameterConfig.FromString(one.SerializeToString()) for one in CONFIGS]
    configs[1].decay_rate_l1 = 0.1
    table = ParameterTable(configs, tables_first=True)
    rows = TableRows(model(), table, Optimization())
    updater = TablesUpdater(Recorder([], "dense"), rows, Recorder([], "tables"), dense_services=1, shrink=0.5)
    table["emb"].value[:], table["bags"].value[:] = [1, -2, 0.25, -0.5] * 5, 1
    updater.prefetch({"word": Argument(ids=np.array([3, 0]))})
    assert table["emb"].value[:8].tolist() == [0.5, -1.5, 0.25, -0.5, 1, -2, 0, 0]
    with updater.averaged():
        assert table["emb"].value[:6].tolist() == [0, -1, 0, 0, 0.5, -1.5]
    assert table["bags"].value.tolist() == [1] * 8


@pytest.mark.parametrize("is_replica", [False, True])
def test_tables_come_first_and_the_rest_is_one_piece(is_replica):
    table = ParameterTable(CONFIGS, tables_first=True)
    table = table.replicate() if is_replica else table
    assert [one.name for one in table] == ["w", "emb", "mean", "bags", "b"]
    assert [one.name for one in table.trained()] == ["emb", "bags", "w", "b"]
    assert table.tables_size == 28
    dense = DenseParameters(table)
    assert [one.name for one in dense] == ["w", "mean", "b"] and [one.name for one in dense.trained()] == ["w", "b"]
    table["w"].value[:] = 7
    table["b"].add_gradient(np.full(3, 5, np.float32))
    assert dense.values.tolist() == [7] * 6 + [0] * 3
    assert dense.gradients.tolist() == [0] * 6 + [5] * 3
    assert dense.gradients is dense.peek_gradients()


def test_without_servers_the_order_is_that_of_the_message():
    table = ParameterTable(CONFIGS)
    assert [one.name for one in table.trained()] == ["w", "emb", "bags", "b"] and not table.tables()


def test_the_gradient_of_a_table_costs_no_memory_where_nothing_is_added():
    table = ParameterTable(CONFIGS, tables_first=True)
    table.peek_gradients()[2] = 3  # a mark where somebody would write zeros
    table.clear_gradients()
    table["emb"].add_rows(np.array([4]), np.ones((1, 2), np.float32))
    assert table["emb"].peek_gradient()[2] == 3 and table["emb"].touched_rows.tolist() == [4]


def test_rows_are_pulled_before_a_batch_and_the_same_ones_pushed_after_it():
    log, table, client, updater = make()
    updater.prefetch({"word": Argument(ids=np.array([3, 9, 3]))})
    rows, matrices = client._answers["seen"]["pull"]
    assert [one.tolist() for one in rows] == [[3, 9], []]
    assert [one.shape for one in matrices] == [(10, 2), (4, 2)]
    matrices[0][3] = 8
    assert table["emb"].value.tolist()[6:8] == [8, 8]
    table["emb"].add_rows(np.array([9]), np.ones((1, 2), np.float32))
    updater.step(5)
    rows, gradients, samples = client._answers["seen"]["begin_push_rows"]
    assert [one.tolist() for one in rows] == [[3, 9], []] and samples == 5
    assert gradients[0][[3, 9]].tolist() == [[0, 0], [1, 1]]
    assert log[-3:] == ["tables begin_push_rows", "dense step", "tables collect"]


def test_a_step_fetches_the_rows_of_the_batch_that_was_announced():
    log, table, client, updater = make()
    first, second = ({"word": Argument(ids=np.array(some))} for some in ([3, 9], [4, 0]))
    updater.prefetch(first)
    updater.announce(second)
    updater.step(5)
    wanted = client._answers["named"]["begin_push_rows"]["wanted"]
    assert [one.tolist() for one in wanted.rows] == [[0, 4], []] and wanted.in_place
    assert np.shares_memory(wanted.tables[0], table["emb"].value)
    del log[:]
    updater.prefetch(second)
    assert log == []
    updater.step(5)
    assert [one.tolist() for one in client._answers["seen"]["begin_push_rows"][0]] == [[0, 4], []]
    assert client._answers["named"]["begin_push_rows"]["wanted"] is None


@pytest.mark.parametrize("between", ["another batch", "a test"])
def test_rows_that_came_with_a_step_are_fetched_again_if_they_are_not_those_of_the_batch(between):
    log, _, _, updater = make()
    first, second = ({"word": Argument(ids=np.array(some))} for some in ([3, 9], [4, 0]))
    updater.prefetch(first)
    updater.announce(second)
    updater.step(5)
    if between == "a test":
        with updater.averaged():
            pass
    del log[:]
    updater.prefetch(first if between == "another batch" else second)
    assert log == ["tables pull"]


def test_a_wrong_row_of_the_next_batch_is_an_error_of_that_batch():
    _, _, client, updater = make()
    first, bad = ({"word": Argument(ids=np.array(some))} for some in ([3, 9], [4, 10]))
    updater.prefetch(first)
    updater.announce(bad)
    updater.step(5)
    assert client._answers["named"]["begin_push_rows"]["wanted"] is None
    with pytest.raises(DataError, match="row 10"):
        updater.prefetch(bad)


def test_asynchronous_tables_are_fetched_right_before_their_batch():
    rows = TableRows(model(), ParameterTable(CONFIGS, tables_first=True), Optimization(algorithm="async_sgd"))
    assert not TablesUpdater(Recorder([], "dense"), rows, Recorder([], "tables"), dense_services=1).looks_ahead


def test_who_ends_a_pass_tells_the_sparse_services_before_it_waits_for_the_others():
    log, _, _, updater = make()
    updater.finish_pass({"k": 1})
    assert log[-3:] == ["tables begin_end_of_pass", "dense finish_pass", "tables collect"]


def test_all_rows_are_fetched_for_tests_and_saves():
    log, table, client, updater = make()
    with updater.averaged():
        assert log[-2:] == ["dense averaged", "tables fetch"]
    (values,) = client._answers["seen"]["fetch"]
    assert values.size == 28 and np.shares_memory(values, table.values)


def test_dense_gradients_leave_by_their_own_numbers():
    pushed = []
    _, _, _, updater = make(begin_step=pushed.append)
    push = updater.begin_step(5)
    for start in (30, 28, 4):
        push(start)
    assert pushed == [2, 0, 0]


def test_a_checkpoint_has_the_dense_services_first_and_goes_back_so():
    dense, tables = Part({"of": "dense"}, {}), [Part({"of": number}, {}) for number in range(2)]
    _, _, client, updater = make()
    updater._dense._answers["gather_checkpoint"] = CheckpointState([dense], [{"k": 1}])
    client._answers["gather_checkpoint"] = CheckpointState(tables, [None])
    gathered = updater.gather_checkpoint({"k": 1})
    assert gathered == CheckpointState([dense, *tables], [{"k": 1}])
    updater.connect(gathered)
    assert updater._dense._answers["seen"]["connect"] == (CheckpointState([dense], [{"k": 1}]),)
    assert client._answers["seen"]["initialise"][1] == CheckpointState(tables, [{"k": 1}])


def test_a_server_without_sparse_ports_is_told_with_the_flags_of_both():
    _, _, _, updater = make(join=PeerUnreachableError("pserver h:7166 does not answer"))
    with pytest.raises(PeerUnreachableError, match=r"h:7166 does not answer.*`paddle pserver` and `paddle train`"):
        updater.connect()


def test_a_table_with_an_update_hook_is_refused():
    configs = [ParameterConfig(), *CONFIGS[2:]]
    configs[0].CopyFrom(CONFIGS[1])
    configs[0].update_hooks.add(type="pruning", sparsity_ratio=0.5)
    table = ParameterTable(configs, tables_first=True)
    with pytest.raises(ConfigError, match="emb has sparse_update and an update hook"):
        TableRows(model(), table, Optimization())
