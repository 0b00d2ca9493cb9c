"""Transfers from a real S3 server that refuses, throttles, answers half, and changes what is read."""

from __future__ import annotations

import datetime
import os
import re
import resource
import threading
import time

import botocore.auth
import fsspec
import pytest
from s3_process import ProxyHandler, corrupt, half, refuse, throttle

from paddle_base.remote import fsspec_store
from paddle_base.remote.addresses import parse_address
from paddle_base.remote.failures import ChangedError
from paddle_base.remote.interface import BLOCK, RemoteFile
from paddle_base.remote.patience import Patience
from paddle_base.remote.reader import open_file
from paddle_base.remote.stores import list_files, open_store
from paddle_base.remote.transfer import DamagedTransferError, download, read_pieces, upload
from paddle_base.remote.tree import _Copying, download_all
from paddle_base.runtime.errors import (
    ApiForbiddenError,
    ConfigError,
    DataError,
    MissingInputError,
    PeerUnreachableError,
)


def listed(bucket, text, store=None, **more):
    return list(list_files(store or bucket.store, parse_address(text, "DATA_PATH"), bucket.patience(), **more))


def fetched(bucket, text, target, patience=None):
    (file,) = listed(bucket, text)
    download(bucket.store, file, target, (patience or bucket.patience()).begin())
    return target.read_bytes()


def test_a_prefix_a_pattern_and_an_object_are_listed(bucket):
    for key in ("a/1.csv", "a/2.csv", "a/b/3.csv", "ab/4.csv", "5.txt"):
        bucket.put(key, key.encode())
    names = {
        text: [file.address.key for file in listed(bucket, text)]
        for text in ("s3://bucket/a", "s3://bucket/a/", "s3://bucket/*/*.csv", "s3://bucket/a/1.csv", "s3://bucket")
    }
    assert names == {
        "s3://bucket/a": ["a/1.csv", "a/2.csv", "a/b/3.csv"],
        "s3://bucket/a/": ["a/1.csv", "a/2.csv", "a/b/3.csv"],
        "s3://bucket/*/*.csv": ["a/1.csv", "a/2.csv", "ab/4.csv"],
        "s3://bucket/a/1.csv": ["a/1.csv"],
        "s3://bucket": ["5.txt", "a/1.csv", "a/2.csv", "a/b/3.csv", "ab/4.csv"],
    }


def test_a_transfer_that_was_cut_off_goes_on_where_it_stopped(bucket, tmp_path):
    content = os.urandom(2 * BLOCK + 1000)
    bucket.put("big", content)
    bucket.proxy.requests.clear()
    bucket.proxy.faults = [ProxyHandler.send_plain, half]
    assert fetched(bucket, "s3://bucket/big", tmp_path / "big") == content
    ranges = [part for method, _, part in bucket.proxy.requests if method == "GET" and part]
    assert ranges.count(f"bytes=0-{BLOCK - 1}") == 1
    assert ranges.count(f"bytes={BLOCK}-{2 * BLOCK - 1}") == 2  # cut off, and whole
    assert len(bucket.waits) == 1 and "next try in 0.2 s" in bucket.said[0]


def test_a_server_that_throttles_gets_the_pause_that_it_asks_for(bucket, tmp_path):
    bucket.put("a", b"hello")
    bucket.proxy.faults = [throttle(7)]
    assert fetched(bucket, "s3://bucket/a", tmp_path / "a") == b"hello"
    assert bucket.waits == [7.0]
    assert "503" in bucket.said[0] and "next try in 7.0 s" in bucket.said[0]


def test_a_server_that_throttles_for_longer_than_the_deadline_is_an_error_at_once(bucket, tmp_path):
    bucket.put("a", b"hello")
    bucket.proxy.faults = [throttle(50)]
    with pytest.raises(PeerUnreachableError, match=r"DATA_PATH s3://bucket/a: 503 .* \(tried for 20 s\)"):
        fetched(bucket, "s3://bucket/a", tmp_path / "a")
    assert not bucket.waits


def test_a_server_that_is_gone_is_an_error_after_the_deadline(bucket, tmp_path):
    bucket.put("a", b"hello")
    (file,) = listed(bucket, "s3://bucket/a")
    moments = iter(range(1000))
    patience = bucket.patience(clock=lambda: float(next(moments)), remedy="raise DATA_TIMEOUT")
    bucket.proxy.applies, bucket.proxy.faults = (lambda method, path: True), [refuse] * 1000
    with pytest.raises(PeerUnreachableError, match=r"s3://bucket/a: .*\(tried for 20 s\); raise DATA_TIMEOUT"):
        download(bucket.store, file, tmp_path / "a", patience.begin())


def test_an_object_that_changes_while_it_is_read_is_noticed_by_its_etag(bucket, tmp_path):
    bucket.put("a", b"1" * (BLOCK + 10))
    (file,) = listed(bucket, "s3://bucket/a")
    pieces = read_pieces(bucket.store, file, bucket.patience().begin())
    next(pieces)
    bucket.put("a", b"2" * (BLOCK + 10))
    with pytest.raises(ChangedError, match="s3://bucket/a has changed while it was read: its ETag is another one"):
        next(pieces)
    with pytest.raises(ChangedError):  # it was listed before it changed
        download(bucket.store, file, tmp_path / "a", bucket.patience().begin())


def test_content_that_was_damaged_on_its_way_is_asked_for_again(bucket, tmp_path):
    bucket.put("a", b"hello")
    bucket.proxy.faults = [corrupt]
    counted = []
    (file,) = listed(bucket, "s3://bucket/a")
    download(bucket.store, file, tmp_path / "a", bucket.patience().begin(), counted.append)
    assert (tmp_path / "a").read_bytes() == b"hello" and sum(counted) == 5
    bucket.proxy.faults = [corrupt, corrupt]
    with pytest.raises(DamagedTransferError, match=r"have MD5 .*, not 5d41402abc4b2a76b9719d911017c592"):
        fetched(bucket, "s3://bucket/a", tmp_path / "a")


def test_what_is_wrong_is_said_in_one_line(bucket, monkeypatch, tmp_path):
    bucket.put("a", b"hello")
    with pytest.raises(MissingInputError, match=r"s3://nobucket/a: 404 .*correct the name of the bucket"):
        listed(bucket, "s3://nobucket/a")
    with pytest.raises(MissingInputError, match="s3://bucket/none/: no object is there; correct the address"):
        listed(bucket, "s3://bucket/none/")
    with pytest.raises(MissingInputError, match=r"s3://bucket/\*.csv: no object matches this pattern"):
        listed(bucket, "s3://bucket/*.csv")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    again = parse_address("s3://bucket", "DATA_PATH")
    with pytest.raises(ApiForbiddenError, match=r"s3://bucket/a: 403 .*the server denies access") as caught:
        listed(bucket, "s3://bucket/a", open_store(again))
    assert "another" not in str(caught.value).replace("another one", "") and not bucket.waits
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigError, match=r"no credentials for it .*set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        listed(bucket, "s3://bucket/a", open_store(again))


def test_a_wrong_clock_is_named(bucket, monkeypatch):
    bucket.put("a", b"hello")
    real = botocore.auth.get_current_datetime
    monkeypatch.setattr(
        botocore.auth, "get_current_datetime", lambda *how, **more: real(*how, **more) - datetime.timedelta(hours=1)
    )
    with pytest.raises(ApiForbiddenError, match=r"the clock of this machine is .* set the clock"):
        address = parse_address("s3://bucket/a", "DATA_PATH")
        patience = bucket.patience(now=lambda: time.time() - 3600)
        list(list_files(bucket.store, address, patience))


def fill(bucket, folders):
    """Make 1000 objects in each of some folders, by names of empty files."""
    for folder in range(folders):
        (bucket.folder / "many" / f"{folder:02d}").mkdir(parents=True)
        place = os.open(bucket.folder / "many" / f"{folder:02d}", os.O_RDONLY)
        for number in range(1000):
            os.mknod(f"{number:03d}", dir_fd=place)
        os.close(place)


def test_a_listing_of_several_pages_is_whole_and_a_limit_says_so(bucket):
    fill(bucket, 3)
    names = [file.address.key for file in listed(bucket, "s3://bucket/many/")]
    assert names == [f"many/{number // 1000:02d}/{number % 1000:03d}" for number in range(3000)]
    with pytest.raises(DataError, match="the listing has more than 1500 names; name a smaller directory"):
        listed(bucket, "s3://bucket/many/", most=1500)


@pytest.mark.nightly  # the server takes a minute to make and list them
@pytest.mark.timeout(600)
def test_a_bucket_of_100000_objects_is_listed_in_bounded_memory(bucket):
    fill(bucket, 100)
    listed(bucket, "s3://bucket/many/00/")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    address = parse_address("s3://bucket/many/", "DATA_PATH")
    assert sum(1 for _ in list_files(bucket.store, address, bucket.patience(seconds=60.0))) == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10  # KiB; all names at once take 70 MiB


def test_a_reader_seeks_and_reads_after_a_failure(bucket):
    content = os.urandom(3 * BLOCK)
    bucket.put("big", content)
    (file,) = listed(bucket, "s3://bucket/big")
    with open_file(bucket.store, file, bucket.patience(), buffer=1 << 16) as reader:
        reader.seek(-8, os.SEEK_END)
        assert reader.read() == content[-8:]
        bucket.proxy.faults = [half]
        reader.seek(BLOCK - 10)
        assert reader.read(BLOCK + 20) == content[BLOCK - 10 : 2 * BLOCK + 10]
        assert len(bucket.waits) == 1
        bucket.put("big", content[::-1])
        reader.seek(0)
        with pytest.raises(ChangedError):
            reader.read(1)


def test_an_upload_of_several_parts_can_be_read(bucket, tmp_path):
    content = os.urandom(5 * BLOCK + 1)
    (tmp_path / "out").write_bytes(content)
    bucket.proxy.applies = lambda method, path: method == "PUT"
    bucket.proxy.faults = [throttle(3)]
    upload(bucket.store, tmp_path / "out", parse_address("s3://bucket/x/out", "OUT"), bucket.patience())
    assert bucket.waits == [3.0]
    bucket.proxy.applies = lambda method, path: False
    assert fetched(bucket, "s3://bucket/x/out", tmp_path / "back") == content


def test_a_directory_is_copied_with_the_names_below_it(bucket, tmp_path):
    for key in ("in/a/1.csv", "in/a/2.csv", "in/3.txt", "other"):
        bucket.put(key, key.encode())
    counted = []

    def copied(text, folder):
        address = parse_address(text, "DATA_PATH")
        paths = download_all(address, tmp_path / folder, bucket.patience(), lambda size, name: counted.append(size))
        return {str(path.relative_to(tmp_path / folder)): path.read_bytes() for path in paths}

    assert copied("s3://bucket/in", "x") == {"3.txt": b"in/3.txt", "a/1.csv": b"in/a/1.csv", "a/2.csv": b"in/a/2.csv"}
    assert sum(counted) == 28
    assert copied("s3://bucket/in/**/*.csv", "y") == {"a/1.csv": b"in/a/1.csv", "a/2.csv": b"in/a/2.csv"}
    assert copied("s3://bucket/in/3.txt", "z") == {"3.txt": b"in/3.txt"}


def test_a_failure_of_one_file_ends_the_transfer_of_all(bucket, tmp_path):
    for number in range(40):
        bucket.put(f"in/{number}", b"x" * 100)

    def count(size, name):
        if name.endswith("/7"):
            raise DataError(f"{name} is too much")

    with pytest.raises(DataError, match="DATA_PATH s3://bucket/in/7 is too much"):
        download_all(parse_address("s3://bucket/in", "DATA_PATH"), tmp_path, bucket.patience(), count)


def test_a_key_that_is_no_path_is_refused(tmp_path, bucket):
    address = parse_address("s3://bucket/in/", "DATA_PATH")
    for key, said in (("in/../../x", "lies outside the folder"), ("in/" + "n" * 300, "has too long a name")):
        copying = _Copying(bucket.store, address, tmp_path / "out", bucket.patience(), lambda *_: None)
        with pytest.raises(DataError, match=f"its key {said} of the download; rename the object"):
            copying.run(iter([RemoteFile(address.with_key(key), 1, "x")]))
    assert not list(tmp_path.iterdir())


def test_an_object_below_the_name_of_another_object_is_refused(bucket, tmp_path):
    bucket.put("in/a/b", b"x")
    bucket.put("in/z", b"x")
    (tmp_path / "a").write_bytes(b"")  # S3 itself allows both names; this server keeps them as files
    with pytest.raises(DataError, match="s3://bucket/in/a/b cannot be a file: a part of its key is a file as well"):
        download_all(parse_address("s3://bucket/in", "DATA_PATH"), tmp_path, bucket.patience())


def test_a_server_that_stalls_is_asked_again_after_the_timeout(bucket, tmp_path, monkeypatch):
    monkeypatch.setitem(fsspec_store.SETTINGS["s3"]["config_kwargs"], "read_timeout", 0.5)
    bucket.put("a", b"x" * 1000)
    ending = threading.Event()

    def stall(handler, answer, body):
        handler.send_head(answer, len(body))
        handler.wfile.write(body[:10])
        handler.wfile.flush()
        ending.wait(30)

    bucket.proxy.faults = [stall]
    try:
        assert fetched(bucket, "s3://bucket/a", tmp_path / "a") == b"x" * 1000
    finally:
        ending.set()
    assert len(bucket.waits) == 1


def test_a_server_that_is_killed_and_started_again_is_asked_again(bucket, s3_server, tmp_path):
    content = os.urandom(2 * BLOCK)
    bucket.put("big", content)
    (file,) = listed(bucket, "s3://bucket/big")
    patience = bucket.patience(wait=lambda seconds: s3_server.start())
    pieces = read_pieces(bucket.store, file, patience.begin())
    first = next(pieces)
    s3_server.stop()
    assert first + b"".join(pieces) == content


def test_without_the_extra_a_line_says_what_to_install(monkeypatch):
    def find(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(fsspec_store.importlib, "import_module", find)
    for text, package in (("s3://bucket/x", "paddle-on-kubernetes[s3]"), ("gs://b/x", "gcsfs"), ("az://b/x", "adlfs")):
        with pytest.raises(ConfigError, match=f"install it with: pip install {re.escape(package)}"):
            open_store(parse_address(text, "DATA_PATH"))


def test_paths_have_the_same_listing_and_reader(tmp_path):
    for name in ("a/1.csv", "a/.hidden.csv", "a/b/2.csv", "a/3.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    store, patience = open_store(parse_address(str(tmp_path), "FILE")), Patience("FILE")

    def names(text):
        found = list_files(store, parse_address(f"{tmp_path}/{text}", "FILE"), patience)
        return [file.address.key.removeprefix(f"{tmp_path}/") for file in found]

    assert names("a/*.csv") == ["a/1.csv"] and names("a/**/*.csv") == ["a/1.csv", "a/b/2.csv"]
    assert names("a/b") == ["a/b/2.csv"] and names("a/3.txt") == ["a/3.txt"]
    with pytest.raises(MissingInputError, match=r"FILE .*/none: no object is there"):
        names("none")
    (file,) = list_files(store, parse_address(f"{tmp_path}/a/3.txt", "FILE"), patience)
    with open_file(store, file, patience) as reader:
        assert reader.read() == b"a/3.txt"


def test_a_store_whose_listing_comes_as_a_whole(tmp_path):
    """gcsfs and adlfs have fsspec's common functions; its store in memory stands for them."""
    system = fsspec.filesystem("memory", skip_instance_cache=True)
    for key in ("in/1.csv", "in/2.csv", "other"):
        system.pipe_file(f"/bucket/{key}", key.encode())
    store = fsspec_store.FsspecStore(system)
    address = parse_address("gs://bucket/in/*.csv", "DATA_PATH")
    found = list(list_files(store, address, Patience("DATA_PATH")))
    assert [file.address.key for file in found] == ["in/1.csv", "in/2.csv"]
    (tmp_path / "1").write_bytes(b"x")
    store.put(tmp_path / "1", parse_address("gs://bucket/out", "X"))
    store.remove(parse_address("gs://bucket/out", "X"))
    store.remove(parse_address("gs://bucket/out", "X"))
    assert store.find(parse_address("gs://bucket/out", "X")) is None
    system.store.clear()
