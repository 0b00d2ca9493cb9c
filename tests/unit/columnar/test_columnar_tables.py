"""Tables in Parquet and Arrow files: what is read, and hostile files, which are refused before they are decoded."""

import contextlib
import io
import random
import struct

import pyarrow as pa
import pytest
from each import each
from pyarrow import feather, parquet

from paddle_base.columnar import tables
from paddle_base.columnar.footer import DamagedFooterError, read_footer
from paddle_base.columnar.messages import MessageError, measure_messages
from paddle_base.columnar.package import load_pyarrow
from paddle_base.columnar.pages import measure_chunk
from paddle_base.columnar.tables import open_table
from paddle_base.columnar.thrift import ThriftError, ThriftReader
from paddle_base.runtime.errors import ConfigError, DataError

ROWS = 3000
TABLE = pa.table({
    "text": ["a b", "c", None] * 1000,
    "number": pa.array(range(ROWS), pa.float32()),
    "ids": [[1, 2], [], [3]] * 1000,
    "pairs": pa.array([[(1, 2.0)], None, []] * 1000, pa.map_(pa.int32(), pa.float32())),
    "code": pa.array(["x", "y", "x"] * 1000).dictionary_encode(),
    "both": pa.array([{"a": 1, "b": "t"}] * ROWS),
})  # fmt: skip


def to_parquet(table=TABLE, **options):
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **{"row_group_size": 1000, **options})
    return buffer.getvalue()


def to_feather(table=TABLE, **options):
    buffer = io.BytesIO()
    feather.write_feather(table, buffer, **options)
    return buffer.getvalue()


def to_stream(table=TABLE):
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as output:
        output.write_table(table, max_chunksize=900)
    return buffer.getvalue()


def read(content, names=None, most_bytes=tables.MOST_BYTES, most_rows=tables.BATCH_ROWS):
    table = open_table(io.BytesIO(content), "t", most_bytes)
    return list(table.batches(names or table.names, most_rows))


def to_rows(batches):
    return [row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]


FILES = {
    "v1": to_parquet(),
    "v2": to_parquet(data_page_version="2.0", compression="zstd", use_dictionary=False),
    "small pages": to_parquet(data_page_size=100, write_batch_size=50),
    "repeating": to_parquet(column_encoding={"text": "DELTA_BYTE_ARRAY"}, use_dictionary=["code"]),
    "feather": to_feather(chunksize=700),
    "plain feather": to_feather(compression="uncompressed"),
    "stream": to_stream(),
}


@each("name", FILES)
def test_batches_have_the_rows_of_the_file_and_their_places(name):
    batches = read(FILES[name], ["ids", "text", "pairs", "code", "both", "number"], most_rows=64)
    wanted = TABLE.select(["ids", "text", "pairs", "code", "both", "number"])
    assert to_rows(batches) == [tuple(row.values()) for row in wanted.to_pylist()]
    assert max(batch.rows for batch in batches) <= 64
    seen = {}
    for batch in batches:
        assert batch.first == seen.get(batch.group, 0)
        seen[batch.group] = batch.first + batch.rows
    assert sum(seen.values()) == ROWS and list(seen) == sorted(seen)


def test_a_text_of_parquet_is_read_once_for_all_its_rows():
    table = pa.table({"x": ["a" * 100_000] * 2000})
    (batch,) = read(to_parquet(table, row_group_size=5000))
    assert batch.rows == 2000 and batch.columns[0].nbytes < 1 << 20


def test_batches_of_long_texts_have_few_rows(monkeypatch):
    monkeypatch.setattr(tables, "BATCH_BYTES", 100_000)
    table = pa.table({"x": [f"{row:01000}" for row in range(900)]})
    batches = read(to_parquet(table, use_dictionary=False, data_page_size=10_000, write_batch_size=10))
    assert max(batch.rows for batch in batches) < 120 and sum(batch.rows for batch in batches) == 900
    repeating = to_parquet(table, use_dictionary=False, column_encoding={"x": "DELTA_BYTE_ARRAY"})
    monkeypatch.setattr(tables, "BATCH_BYTES", 20_000)
    batches = read(repeating, most_bytes=40_000)  # of texts that may be as long as all pages, which are 2.7 kB
    assert 10 <= max(batch.rows for batch in batches) <= 15 and sum(batch.rows for batch in batches) == 900


def test_a_page_that_declares_much_is_refused_before_it_is_decoded():
    """The metadata say 160 kB; a decoder would believe the header of the page."""
    content = to_parquet(pa.table({"x": pa.array(range(20_000), pa.int64())}), use_dictionary=False,
                         compression="none", row_group_size=1 << 20)  # fmt: skip
    with pytest.raises(DataError, match=r"t row group 0: the largest pages of its columns have 1\d+ bytes together"):
        read(content, most_bytes=100_000)
    footer = read_footer(content[-8 - int.from_bytes(content[-8:-4], "little") : -8])
    chunk = footer.groups[0].chunks[0]
    with pytest.raises(DamagedFooterError, match="its pages have more than the 19000 values"):
        measure_chunk(io.BytesIO(content), chunk._replace(values=19_000))
    with pytest.raises(DamagedFooterError, match="do not end where the metadata say"):
        measure_chunk(io.BytesIO(content), chunk._replace(length=chunk.length - 1))


def test_lists_of_a_few_bytes_with_millions_of_values_are_refused():
    """One row of equal ids is a few bytes in the file, whatever its length."""
    table = pa.table({"x": pa.array([[7] * 1_000_000])})
    content = to_parquet(table, row_group_size=1)
    assert len(content) < 10_000 and read(content)[0].rows == 1
    with pytest.raises(DataError, match=r"column 'x' has lists of 1000000 values, which are 8000000 bytes in memory"):
        read(content, most_bytes=1 << 20)


def test_a_record_batch_that_declares_much_is_refused_before_it_is_decoded():
    table = pa.table({"x": pa.array([7] * 1_000_000)})
    content = to_feather(table, compression="zstd", chunksize=1 << 20)
    assert len(content) < 300_000
    with pytest.raises(DataError, match=r"a record batch with its dictionaries has 8000000 bytes"):
        read(content, most_bytes=1 << 20)
    size = struct.pack("<q", 8_000_000)
    with pytest.raises(DataError, match=r"has 4611686018427387904 bytes, and at most"):
        read(content.replace(size, struct.pack("<q", 1 << 62)))
    with pytest.raises(DataError, match="t record batch 0 is damaged"):
        read(content.replace(size, struct.pack("<q", 7_000_000)))


def thrift_list(items):
    return b"\xfc" + unsigned(len(items)) + b"".join(items)


def unsigned(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def test_a_schema_that_is_deep_or_long_is_refused():
    """Older versions of pyarrow build it by recursion."""
    group, leaf = b"\x48\x01s\x15\x02\0", b"\x15\x02\x38\x01x\0"
    for items, said in (
        ([group] * 100_000 + [leaf], "groups of its schema are more than 64 deep"),
        ([leaf] * (1 << 18), "its schema has 262144 elements; at most 131072 are read"),
    ):
        footer = b"\x15\x02\x19" + thrift_list(items) + b"\x16\0\x19\x0c\0"
        content = b"PAR1" + footer + struct.pack("<i", len(footer)) + b"PAR1"
        with pytest.raises(DataError, match=said):
            read(content)


def test_metadata_that_say_a_thing_twice_are_refused():
    """Another reader may take the other one, whose sizes are not those that were checked."""
    with pytest.raises(ThriftError, match="field 1 occurs twice"):
        ThriftReader(b"\x15\x02\x05\x02\x04\0").fields()


@each("data", [b"", b"\x15", b"\x15\xff", b"\x18\xff\xff\xff\xff\x0f", b"\x1c" * 40, b"\x1f\0", b"\x15" + b"\xff" * 20])
def test_bytes_that_are_no_structure_are_an_error(data):
    with pytest.raises(ThriftError):
        ThriftReader(data).fields()


def test_a_file_without_its_end_is_refused_wherever_it_is_cut():
    dice = random.Random(3)
    for content in (FILES["v1"], FILES["feather"]):
        for length in [*range(1, 20), *(dice.randrange(20, len(content)) for _ in range(60)), len(content) - 1]:
            with pytest.raises(DataError, match=r"cut off|is no Parquet or Arrow file"):
                read(content[:length])


def test_a_file_with_any_wrong_byte_gives_rows_or_bad_data():
    """pyarrow 26 ends its process for some such metadata."""
    dice = random.Random(5)
    for _ in range(600):
        content = bytearray(FILES[dice.choice(list(FILES))])
        for _ in range(dice.choice((1, 1, 3))):
            place = dice.randrange(len(content)) if dice.random() < 0.5 else -1 - dice.randrange(1500)
            content[place] = dice.choice((0, 127, 128, 255, dice.randrange(256)))
        try:
            read(bytes(content), most_bytes=32 << 20)
        except DataError as error:
            assert "\n" not in str(error)


@each("data", [b"", b"\xff\xff\xff\xff\x10\0\0\0", b"\xff\xff\xff\xff\x04\0\0\0\xff\xff\xff\x7f", b"PAR1" * 4])
def test_messages_that_are_damaged_are_an_error(data):
    with contextlib.suppress(MessageError):
        assert list(measure_messages(io.BytesIO(data), 0, len(data))) == [] and not data


def test_a_column_is_asked_for_by_a_name_that_is_there_once():
    table = open_table(io.BytesIO(FILES["v1"]), "t")
    assert table.kind("number") == pa.float32()
    with pytest.raises(DataError, match="t has no column 'no'; its columns are text, number, ids"):
        table.kind("no")
    twice = pa.table([[1], [2]], names=["x", "x"])
    with pytest.raises(DataError, match="t has 2 columns 'x'"):
        open_table(io.BytesIO(to_stream(twice)), "t").kind("x")


def test_the_library_that_is_absent_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'paddle-on-kubernetes\[parquet\]'"):
        load_pyarrow()


def test_an_error_of_the_file_system_stays_one():
    class Sick(io.BytesIO):
        def seek(self, place, whence=0):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        open_table(Sick(FILES["v1"]), "t")
