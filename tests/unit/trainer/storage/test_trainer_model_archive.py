"""Archives of parameters that were crafted: each ends in an error that names the file, soon and in little memory."""

import bz2
import contextlib
import gzip
import io
import tarfile

import pytest

from paddle_base.runtime.errors import DataError
from trainer.storage import model_archive
from trainer.storage.model_archive import ParameterArchive, is_archive


def header(name="w", size=0, kind=tarfile.REGTYPE, **pax):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.pax_headers = size, kind, pax
    return member.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT)


def archive_of(path, members, opener=open):
    with opener(path, "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("opener", [open, gzip.open, bz2.open])
def test_members_are_read_in_any_order(tmp_path, opener):
    path = archive_of(tmp_path / "model", {"a": b"123", "b": b"45" * 9000, "a.protobuf": b"?"}, opener)
    assert is_archive(path)
    with contextlib.closing(ParameterArchive(path)) as archive:
        assert archive.names() == ["a", "b"]
        assert (archive.read("b", 4), archive.read("a", 99), archive.read("c", 1)) == (b"4545", b"123", None)
        assert archive.read("b", 99999) == b"45" * 9000


CRAFTED = {
    "an extended header of 8 GB": (header("h", 8 << 30, tarfile.XHDTYPE) + b"x" * 512, "a header has 8589934592 bytes"),
    "a long name of 8 GB": (
        header("h", 8 << 30, tarfile.GNUTYPE_LONGNAME) + b"x" * 512,
        "a header has 8589934592 bytes",
    ),
    "a chain of extended headers": ((header("h", 512, tarfile.XHDTYPE) + b"\0" * 512) * 5000, "recursion"),
    "a size below zero": (header("w", -1024) + header("w"), "has -1024 bytes|a member begins at byte -"),
    "a size beyond the file": (header("w", 1 << 40) + b"x" * 512, "unexpected end|a member begins at byte"),
    "no member at all": (b"x" * 257 + b"ustar" + b"x" * 512, "bad checksum|invalid header"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_archive_is_a_data_error(tmp_path, name):
    content, message = CRAFTED[name]
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"model is no tar archive of parameters: .*({message})"):
        ParameterArchive(path)


def test_a_compressed_archive_that_expands_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(model_archive, "EXPANDED_LIMIT", 1 << 20)
    path = archive_of(tmp_path / "bomb", {"w": bytes(4 << 20), "v": b"1"}, gzip.open)
    with pytest.raises(DataError, match=r"bomb is no tar archive of parameters: a member begins at byte \d+, but"):
        ParameterArchive(path)


def test_members_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(model_archive, "MEMBERS_LIMIT", 3)
    path = archive_of(tmp_path / "model", dict.fromkeys("abcd", b""))
    with pytest.raises(DataError, match="it has more than 3 members"):
        ParameterArchive(path)


def test_what_was_cut_is_refused(tmp_path):
    path = archive_of(tmp_path / "model", {"w": b"1" * 5000}, gzip.open)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="model is no tar archive of parameters: "):
        ParameterArchive(path)


def test_links_and_devices_are_no_parameters(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(header("w", kind=tarfile.SYMTYPE) + header("v", kind=tarfile.CHRTYPE) + bytes(1024))
    with contextlib.closing(ParameterArchive(path)) as archive:
        assert archive.names() == []
