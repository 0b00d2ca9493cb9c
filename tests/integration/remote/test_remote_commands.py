"""`paddle recordio` and `paddle report` read a bucket of a real S3 server."""

import json

import pytest
from s3_process import half

import paddle.utils.recordio as recordio
from paddle_base.recordio.reading import RecordIOReader
from trainer.report import __main__ as report


def test_recordio_converts_shows_and_reads_objects(bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        bucket.put(f"lines/{number}.txt", b"".join(b"line %d of %d\n" % (line, number) for line in range(50)))
    bucket.proxy.faults = [half]
    assert recordio.main(["convert", "s3://bucket/lines/*.txt", "--line_count=100", "--compressor=gzip"]) == 0
    assert "100 records" in capsys.readouterr().out
    bucket.put("records/part-00000", (tmp_path / "part-00000").read_bytes())
    assert recordio.main(["show", "s3://bucket/records/part-00000"]) == 0
    assert recordio.main(["check", "s3://bucket/records"]) == 0
    assert "s3://bucket/records/part-00000: 100 records in 1 chunk, none of them damaged" in capsys.readouterr().out
    with RecordIOReader("s3://bucket/records/part-00000") as reader:
        assert [next(iter(reader)), *reader][99] == b"line 49 of 1"
    assert recordio.main(["show", "s3://bucket/none/"]) == 66
    assert "FILE s3://bucket/none/: no object is there" in capsys.readouterr().err
    assert recordio.main(["check", "s3://bucket/lines/0.txt"]) == 65


def test_a_report_of_an_output_in_a_bucket_reads_no_parameters(bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bucket.put("jobs/demo/output/records.jsonl", json.dumps({"kind": "start", "time": 1.0}).encode() + b"\n")
    bucket.put("jobs/demo/output/progress.json", b'{"pass": 1, "samples": 10}')
    bucket.put("jobs/demo/output/pass-00000/___fc__.w0", b"x" * 5000)
    bucket.put("jobs/demo/output/pass-00000/done", b"")
    bucket.proxy.requests.clear()
    assert report.main(["s3://bucket/jobs/demo/output"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "demo" in page and "pass-00000" in page
    assert not [path for method, path, _ in bucket.proxy.requests if method == "GET" and "fc" in path]
    assert report.main(["s3://bucket/jobs/none"]) == 66
    assert "OUTPUT s3://bucket/jobs/none/: no object is there" in capsys.readouterr().err


@pytest.mark.parametrize("command", [recordio.main, lambda argv: report.main(argv[1:])])
def test_an_address_of_an_unknown_kind_is_one_line(command, capsys):
    assert command(["show", "ftp://host/x"]) == 78
    assert "begins with ftp://, which is not read" in capsys.readouterr().err
