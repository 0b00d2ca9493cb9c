"""Ids are compared with the size of their data layer, as in v0.10, and not with the size in the provider's type."""

import pytest

from paddle_base.runtime.errors import DataError
from trainer.arrays.rng import Stream
from trainer.data.provider2 import (
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    provider,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_float_vector,
)
from trainer.data.source import DataSource, DataStreams

KINDS = {
    "label": (integer_value, lambda i: i),
    "sequence": (integer_value_sequence, lambda i: [0, i]),
    "sub-sequence": (integer_value_sub_sequence, lambda i: [[0], [], [i, 1]]),
    "sparse": (sparse_binary_vector, lambda i: [i]),
    "sparse with values": (sparse_float_vector, lambda i: [(i, 0.5)]),
    "sequence of sparse": (sparse_binary_vector_sequence, lambda i: [[], [i]]),
}


def read(kind, size, ids, spell=lambda i: i):
    """Read two passes of samples with these ids, and return the batches of the second."""

    def process(settings, file):
        yield from ({"x": spell(one)} for one in ids)

    made = provider(input_types={"x": kind})(process)(["f"], is_train=True, input_order=["x"])
    made.slots_of_data_layers[0].size = size
    source = DataSource(made, ["f"], shuffled=False, streams=DataStreams(Stream(1), mixing=Stream(1)))
    for _ in range(2):
        source.start_pass()
        batches = [source.next_batch(1) for _ in ids]
    return [batch["x"] for batch, _ in batches]


@pytest.mark.parametrize("name", KINDS)
def test_an_id_above_its_type_and_below_its_data_layer_trains_with_one_warning(name, capsys):
    make, spell = KINDS[name]
    found = read(make(4), 24, [3, 23, 22], spell)
    where = found[1].sparse.ids if found[1].sparse is not None else found[1].ids
    assert 23 in where.tolist()
    assert found[1].sparse is None or found[1].sparse.width == 24
    log = capsys.readouterr().err
    assert log.count("WARNING") + log.count("\nW") + log.startswith("W") == 1
    assert f"slot x ({make(4)}) has the id 23, which is not below the size of its type; data_layer x has size 24" in log


@pytest.mark.parametrize("name", KINDS)
def test_an_id_at_the_size_of_its_data_layer_is_refused_with_both_sizes(name):
    make, spell = KINDS[name]
    with pytest.raises(DataError) as caught:
        read(make(4), 24, [1, 24], spell)
    assert "sample 2 of f" in str(caught.value) and f"slot x ({make(4)})" in str(caught.value)
    assert "id 24 is not in [0, 24)" in str(caught.value) and "data_layer x has size 24" in str(caught.value)


def test_an_id_below_its_type_and_above_its_data_layer_is_left_to_the_layers_with_a_warning(capsys):
    assert read(integer_value(6), 5, [4, 5])[1].ids.tolist() == [5]
    assert "has the id 5, which is not below the size of its data layer; data_layer x has size 5" in (
        capsys.readouterr().err
    )


def test_two_sizes_of_1_do_not_limit_the_numbers_of_queries(capsys):
    assert read(integer_value(1), 1, [0, 7_000_000])[1].ids.tolist() == [7_000_000]
    assert capsys.readouterr().err.count("has the id 7000000") == 1


def test_fitting_sizes_give_no_warning(capsys):
    read(integer_value(6), 6, [5])
    read(integer_value(9), 1, [8])
    assert capsys.readouterr().err == ""
