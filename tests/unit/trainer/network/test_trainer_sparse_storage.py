"""Parameters of sparse storage: the places of their values, in memory and in files."""

import struct

import numpy as np
import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_base.runtime.saves import HEADER
from pserver.store.snapshot import CheckpointState
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.arrays.sparse_storage import sparse_pattern
from trainer.storage.checkpoint import write_checkpoint
from trainer.storage.checkpoint_reader import read_checkpoint
from trainer.storage.model_files import encode_parameter
from trainer.storage.model_sources import load_model

WHOLE = np.array([[0, 5, 0, 6], [7, 0, 0, 0], [0, 0, 8, 0]], np.float32)
# values, row array, column array of a file
STORED = {
    "csr": ([5, 6, 7, 8], [0, 2, 3, 4], [1, 3, 0, 2]),
    "csc": ([7, 5, 8, 6], [1, 0, 2, 0], [0, 1, 2, 3, 4]),
}


def make_config(form="csr", size=4, dims=(3, 4), **more):
    return ParameterConfig(name="w", size=size, dims=dims, is_sparse=True, format=form, **more)


def make_file(form, cut=None):
    values, rows, columns = STORED[form]
    numbers = np.array([*rows, *columns], "<i4").tobytes()
    return HEADER.pack(0, 4, len(values)) + np.array(values, "<f4").tobytes() + numbers[:cut]


def load(tmp_path, form, config=None, data=None):
    (tmp_path / "w").write_bytes(make_file(form) if data is None else data)
    table = ParameterTable([config or make_config(form)])
    load_model(tmp_path, table, "fail", Stream(1))
    return table


def take_places(form, matrix):
    """What a matrix has where the file has its values, in their order."""
    return [matrix[tuple(np.argwhere(value == WHOLE)[0])] for value in STORED[form][0]]


@pytest.mark.parametrize("form", STORED)
def test_a_file_says_where_the_values_are_and_is_written_again(tmp_path, form):
    table = load(tmp_path, form)
    assert table.values.tolist() == STORED[form][0]  # an optimiser steps these alone
    assert table["w"].elements == 12 and (table["w"].matrix(3, 4) == WHOLE).all()
    assert b"".join(map(bytes, encode_parameter(table["w"]))) == make_file(form)


@pytest.mark.parametrize("form", STORED)
def test_the_gradient_has_what_lies_at_the_places(tmp_path, form):
    table = load(tmp_path, form)
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(5, 4)).astype(np.float32)
    table["w"].add_product(x, g)
    assert table.gradients == pytest.approx(take_places(form, x.T @ g), rel=1e-5)
    replica = table.replicate()
    replica["w"].add_outer(g, np.array([0, 2, 1]), np.array([0, 1, 1, 3, 3, 3]))
    assert replica.gradients == pytest.approx(take_places(form, g[[0, 2, 2]]), rel=1e-5)


@pytest.mark.parametrize("strategy", ["rand", "zero"])
def test_without_a_file_there_are_no_places(tmp_path, strategy):
    table = ParameterTable([make_config()])
    with pytest.raises(ConfigError, match="only a file has the positions of its 4 values; give a model that contains"):
        table.randomize(Stream(1))
    with pytest.raises(ConfigError, match="only a file has the positions"):
        load_model(tmp_path, table, strategy, Stream(1))
        table["w"].matrix(3, 4)


@pytest.mark.parametrize(
    ("rows", "columns", "what"),
    [
        ([0, 2, 3, 5], [1, 3, 0, 2], "do not rise from 0 to 4"),
        ([0, 3, 2, 4], [1, 3, 0, 2], "do not rise from 0 to 4"),
        ([1, 2, 3, 4], [1, 3, 0, 2], "do not rise from 0 to 4"),
        ([0, 2, 3, 4], [1, 4, 0, 2], r"the column of a value is not in \[0, 4\)"),
        ([0, 2, 3, 4], [1, -1, 0, 2], r"the column of a value is not in \[0, 4\)"),
        ([0, 2, 3, 4], [1, 1, 0, 2], "two values have the same position in the matrix"),
    ],
)
def test_places_that_cannot_be_are_refused(tmp_path, rows, columns, what):
    numbers = np.array([*rows, *columns], "<i4").tobytes()
    with pytest.raises(DataError, match=what):
        load(tmp_path, "csr", data=make_file("csr", 0) + numbers)


def test_a_file_without_its_places_is_cut_off(tmp_path):
    with pytest.raises(DataError, match="cut off"):
        load(tmp_path, "csr", data=make_file("csr", 12))


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (make_config("bcsr"), "the format of its sparse storage is 'bcsr'"),
        (make_config(size=13), "13 values of sparse storage do not fit"),
        (make_config(dims=(12,)), "do not fit"),
        (make_config(dims=(1 << 31, 1 << 31)), "do not fit"),
        (make_config(sparse_update=True), "cannot be updated sparsely"),
    ],
)
def test_a_record_that_cannot_be_is_refused(config, what):
    with pytest.raises(ConfigError, match=what):
        sparse_pattern(config)


def test_a_parameter_that_is_compacted_has_a_file_of_all_values(tmp_path, capsys):
    data = HEADER.pack(0, 4, 12) + WHOLE.tobytes()
    table = load(tmp_path, "csr", make_config(size=12, need_compact=True), data)
    assert (table["w"].matrix(3, 4) == WHOLE).all()
    assert "compact nnz=0.333333 name=w" in capsys.readouterr().err


def test_a_checkpoint_has_the_places(tmp_path):
    (tmp_path / "model").mkdir()
    table = load(tmp_path / "model", "csc")
    folder = tmp_path / "state" / "pass-00000"
    write_checkpoint(folder, CheckpointState([], [{"place": {"number": 0}}]), table, {}, {"number": 0})
    again = ParameterTable([make_config("csc")])
    read_checkpoint(folder, again)
    assert (again["w"].matrix(3, 4) == WHOLE).all()


def test_a_merged_model_has_the_places_between_its_parameters(tmp_path):
    config = TrainerConfig()
    config.opt_config.algorithm, config.opt_config.learning_rate, config.opt_config.batch_size = "sgd", 1, 1
    config.model_config.type = "nn"
    records = [make_config("csr"), ParameterConfig(name="b", size=2)]
    config.model_config.parameters.extend(records)
    message = config.SerializeToString()
    parts = [struct.pack("<q", len(message)), message, make_file("csr")]
    parts += [HEADER.pack(0, 4, 2), np.array([3, 4], "<f4").tobytes()]
    (tmp_path / "merged").write_bytes(b"".join(parts))
    table = ParameterTable(records)
    load_model(tmp_path / "merged", table, "fail", Stream(1))
    assert (table["w"].matrix(3, 4) == WHOLE).all() and table["b"].value.tolist() == [3, 4]
