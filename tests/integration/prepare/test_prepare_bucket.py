"""The data job reads a bucket of a real S3 server."""

import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from s3_process import SECRET, half

from paddle_cluster.prepare.program import main

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def prepare(tmp_path, capsys, bucket):
    """Run the data job on a path, and return its status, its log, and the lines of all shards."""

    def run(source, path, *flags):
        job = tmp_path / "job"
        status = main([f"--data_source={source}", f"--data_path={path}", f"--out_dir={job}", "--split_count=2",
                       f"--examples_dir={EXAMPLES}", *flags])  # fmt: skip
        said = capsys.readouterr().err
        assert SECRET not in said
        lines = [line for file in job.glob("[0-9]/data/train.*") for line in file.read_text().splitlines()]
        return status, said, lines

    return run


def test_the_tables_that_match_a_pattern_become_shards(bucket, prepare):
    for number in range(3):
        bucket.put(f"weather/{number}.csv", b"rain,wind\n" + b"".join(b"%d,%d\n" % (i % 2, i) for i in range(20)))
    bucket.put("weather/readme.txt", b"no table")
    bucket.proxy.faults = [half]
    status, said, lines = prepare("csv", "s3://bucket/weather/*.csv", "--csv_label=rain")
    assert status == 0, said
    assert "next try in" in said and len([line for line in lines if line[0].isdigit()]) > 40


def test_columns_of_parquet_in_a_bucket_become_texts(bucket, tmp_path, capsys):
    for number in range(3):
        content = io.BytesIO()
        rows = {"text": [f"word{i} more" for i in range(20)], "stars": [i % 5 for i in range(20)]}
        parquet.write_table(pa.table(rows), content)
        bucket.put(f"reviews/{number}.parquet", content.getvalue())
    bucket.put("reviews/_SUCCESS", b"")
    pattern, job = "s3://bucket/reviews/*.parquet", tmp_path / "job"
    flags = ["--input", pattern, "--text", "text", "--label", "stars", "--shards", "3", str(job)]
    status = main([*flags, f"--examples_dir={EXAMPLES}"])
    assert status == 0, capsys.readouterr().err
    assert len([line for file in job.glob("[0-9]/data/train.txt") for line in file.read_text().splitlines()]) == 48
    bucket.put("reviews/1.parquet", b"no table")
    assert main(flags) == 65
    assert "1.parquet begins with b'no table', which is no Parquet or Arrow file" in capsys.readouterr().err


def test_an_archive_in_a_bucket_is_unpacked(bucket, prepare):
    content = "".join(f"{i % 2}\tword{i % 7} more\n" for i in range(40)).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as output:
        info = tarfile.TarInfo("texts/train.txt")
        info.size = len(content)
        output.addfile(info, io.BytesIO(content))
    bucket.put("texts.tgz", packed.getvalue())
    status, said, lines = prepare("quick_start", "s3://bucket/texts.tgz")
    assert status == 0 and len(lines) > 20, said


def test_bad_input_in_a_bucket_is_one_line(bucket, prepare, monkeypatch):
    for name, content in (
        ("1.csv", b"a,b\n1,2\n"),
        ("2.csv", b"\x89PNG\r\n\x1a\n\0\0\0\0" * 9),
        ("3.csv", b"a,b\n1,2\n"),
    ):
        bucket.put(f"in/{name}", content)

    def check(status, words, *arguments):
        found, said, _ = prepare("csv", *arguments)
        errors = [line for line in said.splitlines() if not line.endswith("CSV_HEADER changes this")]
        assert (found, len(errors)) == (status, 1) and words in errors[0], said

    check(65, "error: 2.csv line 1: 1 columns instead of 2", "s3://bucket/in/")
    check(66, "DATA_PATH s3://bucket/none/: no object is there; correct the address", "s3://bucket/none/")
    check(66, "DATA_PATH s3://nobucket/in/: 404", "s3://nobucket/in/")
    check(
        65,
        "DATA_PATH s3://bucket/in/1.csv: the input has more than 5 bytes",
        "s3://bucket/in/1.csv",
        "--data_max_bytes=5",
    )
    check(78, "a user or password before an '@'", f"s3://me:{SECRET}@bucket/in")
    check(78, "DATA_PATH is downloaded, so DATA_SHA256 must name the expected digest", "https://127.0.0.1:1/a.csv")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    check(78, "there are no credentials for it", "s3://bucket/in/")
