"""SimpleData and ProtoData: files of fixed forms, read as a provider's samples."""

import gzip
import os

import numpy as np
import pytest
from each import each

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.proto.DataFormat_pb2 import DataHeader, DataSample, SlotDef
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.arrays.rng import Stream
from trainer.data.loading import open_source
from trainer.data.older.messages import read_messages
from trainer.data.older.text import read_lines
from trainer.data.source import DataStreams


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def message(one):
    data = one.SerializeToString()
    return varint(len(data)) + data


def header(*slots):
    found = DataHeader()
    for kind, dim in slots:
        found.slot_defs.add(type=SlotDef.SlotType.Value(kind), dim=dim)
    return found


def write(tmp_path, *contents, names=("a", "b")):
    paths = [tmp_path / name for name in names[: len(contents)]]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    (tmp_path / "list").write_text("".join(f"{path}\n" for path in paths))
    return str(tmp_path / "list")


def read(files, kind, inputs, size=100, **fields):
    config = DataConfig(type=kind, files=files, **fields)
    source = open_source(
        config,
        [inputs],
        is_train=True,
        streams=DataStreams(Stream(1), Stream(1)),
        shuffles=False,
        check=lambda: None,
        is_own=True,
    )
    source.start_pass()
    batches = []
    while (batch := source.next_batch(size)) is not None:
        batches.append(batch)
    return batches


TEXT = b"1 0.5 -2 3\n0 1 1e-3 2\n"


def test_a_line_of_text_is_a_label_and_numbers(tmp_path):
    files = write(tmp_path, TEXT, b"7 9 8 7\n")
    ((batch, units),) = read(files, "simple", {"x": 3, "label": 8}, feat_dim=3)
    assert batch["x"].value.tolist() == np.float32([[0.5, -2, 3], [1, 1e-3, 2], [9, 8, 7]]).tolist()
    assert (batch["label"].ids.tolist(), units) == ([1, 0, 7], 3)


def test_a_line_has_the_frames_of_a_window(tmp_path):
    files = write(tmp_path, TEXT)
    ((batch, _),) = read(files, "simple", {"x": 3, "label": 8}, feat_dim=1, context_len=1)
    assert batch["x"].value.shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "fields", "error", "said"),
    [
        (b"1 2 3 4\n1 2\n", {"feat_dim": 3}, DataError, "SimpleData.*line 2: it has 1 numbers after its label, not 3"),
        (b"1 2 3 x\n", {"feat_dim": 3}, DataError, "line 1: could not convert string to float: 'x'"),
        (b"1.5 2 3 4\n", {"feat_dim": 3}, DataError, "line 1: invalid literal for int"),
        (TEXT, {}, ConfigError, "SimpleData has no feat_dim"),
        (TEXT, {"feat_dim": 2, "context_len": 1}, ConfigError, "data_layer x has size 3"),
    ],
)
def test_what_is_wrong_with_text_is_said(tmp_path, text, fields, error, said):
    with pytest.raises(error, match=said):
        read(write(tmp_path, text), "simple", {"x": 3, "label": 8}, **fields)


ALL = header(("VECTOR_DENSE", 2), ("VECTOR_SPARSE_NON_VALUE", 9), ("VECTOR_SPARSE_VALUE", 9), ("INDEX", 5))
INPUTS = {"dense": 2, "bits": 9, "values": 9, "label": 5}


def sample(number, begins=True):
    one = DataSample(is_beginning=begins, id_slots=[number])
    one.vector_slots.add(values=[number, 0.5])
    one.vector_slots.add(ids=[number, 8])
    one.vector_slots.add(ids=[number], values=[0.25])
    return one


def of_samples(*samples, head=ALL):
    return message(head) + b"".join(map(message, samples))


@pytest.mark.parametrize("kind", ["proto", "proto_group"])
@pytest.mark.parametrize("names", [("a", "b"), ("a.gz", "b.gz")])
def test_samples_of_messages_have_the_slots_of_their_header(tmp_path, kind, names):
    files = write(tmp_path, of_samples(sample(1), sample(2)), of_samples(sample(3)), names=names)
    ((batch, units),) = read(files, kind, INPUTS)
    assert units == 3 and batch["dense"].starts is None
    assert batch["dense"].value.tolist() == [[1, 0.5], [2, 0.5], [3, 0.5]]
    assert batch["bits"].sparse.ids.tolist() == [1, 8, 2, 8, 3, 8] and batch["bits"].sparse.values is None
    assert batch["values"].sparse.values.tolist() == [0.25] * 3
    assert batch["label"].ids.tolist() == [1, 2, 3]


def test_samples_that_begin_nothing_go_on_with_a_sequence(tmp_path):
    """Batches count frames; a sequence that is longer than a batch is one."""
    begins = [True, False, True, True, False, False, True]
    content = of_samples(*(sample(number % 5, begin) for number, begin in enumerate(begins)))
    batches = read(write(tmp_path, content), "proto", INPUTS, size=2)
    assert [batch["dense"].starts.tolist() for batch, _ in batches] == [[0, 2], [0, 1], [0, 3], [0, 1]]
    assert [units for _, units in batches] == [2, 1, 3, 1]
    assert [batch["label"].ids.tolist() for batch, _ in batches] == [[0, 1], [2], [3, 4, 0], [1]]


@pytest.mark.parametrize("kind", ["proto_sequence", "proto_sequence_group"])
def test_each_sample_is_a_sequence_of_ids(tmp_path, kind):
    ((batch, units),) = read(write(tmp_path, of_samples(sample(1), sample(4))), kind, INPUTS)
    assert units == 2 and batch["bits"].ids.tolist() == [1, 8, 4, 8] and batch["bits"].starts.tolist() == [0, 2, 4]
    assert batch["label"].ids.tolist() == [1, 4] and batch["label"].starts is None


def test_items_on_grids_come_with_their_extents(tmp_path):
    head = header(("VAR_MDIM_DENSE", 2), ("VAR_MDIM_INDEX", 7))
    samples = []
    for extents in ([2, 3], [1, 2], [0, 4]):
        many = int(np.prod(extents))
        one = DataSample()
        one.vector_slots.add(values=np.arange(2 * many), dims=extents)
        one.var_id_slots.add(ids=range(many), dims=extents)
        samples.append(one)
    ((batch, _),) = read(write(tmp_path, of_samples(*samples, head=head)), "proto", {"x": 2, "ids": 7})
    assert batch["x"].grids.tolist() == [[2, 3], [1, 2], [0, 4]] == batch["ids"].grids.tolist()
    assert batch["x"].starts.tolist() == [0, 6, 8, 8] and batch["x"].value[7].tolist() == [2, 3]


def with_grid(dims, many):
    one = DataSample()
    one.vector_slots.add(values=range(many), dims=dims)
    return one


GRID = header(("VAR_MDIM_DENSE", 1))


WRONG = [
    (b"", "has the slots none; it must have slots"),
    (message(header(("STRING", 2))), "has the slots STRING"),
    (message(header(("INDEX", 2), ("VECTOR_DENSE", 2))), "a slot of ids before a slot of vectors"),
    (b"\xff\xff\xff\xff\xff\xff", "message 0 claims to have over .* bytes: this is no file of ProtoData"),
    (b"\x80", "the length of message 0 is cut off"),
    (b"\x05abc", "message 0 ends after 3 of 5 bytes"),
    (b"\x03\x0a\xff\xff", "does not begin with a header of ProtoData"),
    (message(ALL) + b"\x03\x12\xff\xff", "message 1 is no sample"),
    (of_samples(DataSample(id_slots=[1])), "it has fewer slots than the header, which has 4"),
    (
        of_samples(DataSample(id_slots=[1, 2], vector_slots=sample(1).vector_slots)),
        "it has more slots than the header, which has 4",
    ),
    (of_samples(with_grid([], 0), head=GRID), "does not give the extents of a grid"),
    (
        of_samples(with_grid([2], 3), head=GRID),
        r"sample 1 of .*a .*3 items do not fit a grid of \[2\] in 1 dimensions",
    ),
    (
        of_samples(with_grid([2], 2), with_grid([2, 1], 2), head=GRID),
        r"sample 2 of .*a .*2 items do not fit a grid of \[2, 1\] in 1 dimensions",
    ),
]


@each(("content", "said"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_messages_is_said(tmp_path, content, said):
    inputs = {"x": 1} if GRID.SerializeToString() in content else INPUTS
    with pytest.raises(DataError, match=said):
        read(write(tmp_path, content), "proto", inputs)


def test_a_cut_gzip_file_is_bad_data(tmp_path):
    files = write(tmp_path, of_samples(sample(1)), names=("a.gz",))
    path = tmp_path / "a.gz"
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(DataError, match="is no whole gzip file"):
        read(files, "proto", INPUTS)


def test_files_of_a_list_have_the_same_slots_and_are_there(tmp_path):
    files = write(tmp_path, of_samples(sample(1)), message(header(("INDEX", 5))))
    with pytest.raises(DataError, match="b does not have the slots of the first file of the list"):
        read(files, "proto", INPUTS)
    (tmp_path / "a").unlink()
    with pytest.raises(MissingInputError, match="the first one of the list of ProtoData, is not in"):
        read(files, "proto", INPUTS)
    (tmp_path / "list").write_text("")
    with pytest.raises(ConfigError, match="of proto data names no file"):
        read(files, "proto", INPUTS)


def test_a_first_file_with_too_long_a_name_is_a_missing_input(tmp_path):
    """It was a traceback."""
    files = write(tmp_path, b"")
    (tmp_path / "list").write_text("m" * 256 + "\n")
    with pytest.raises(MissingInputError, match="the first one of the list of ProtoData, is not in"):
        read(files, "proto", INPUTS)


def test_a_pipe_among_the_files_is_refused_at_once(tmp_path):
    """The trainer waited for ever for a writer of the pipe."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Is no regular file"):
        next(read_lines(str(tmp_path / "pipe"), 2))
    with pytest.raises(OSError, match="Is no regular file"):
        next(read_messages(str(tmp_path / "pipe")))


def test_sequences_of_samples_do_not_go_with_grids(tmp_path):
    two = with_grid([1], 1)
    two.is_beginning = False
    with pytest.raises(ConfigError, match="every sample must begin a sequence"):
        read(write(tmp_path, of_samples(with_grid([1], 1), two, head=GRID)), "proto", {"x": 1})
