"""Archives are unpacked inside one folder, or refused."""

import io
import stat
import tarfile
import zipfile

import pytest

from prepare import archive
from prepare.errors import DataError


def tar(path, *members):
    with tarfile.open(path, "w:gz") as output:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, "/etc/passwd", len(content)
            output.addfile(info, io.BytesIO(content))
    return path


def unpacked(path, folder):
    assert archive.is_archive(path)
    archive.unpack(path, folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_tar_gives_its_plain_files(tmp_path):
    path = tar(tmp_path / "a.tar.gz", ("d", b"", tarfile.DIRTYPE), ("d/train.txt", b"0\ta\n", tarfile.REGTYPE))
    assert unpacked(path, tmp_path / "out") == {"d/train.txt": b"0\ta\n"}


def test_a_zip_gives_its_plain_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as output:
        output.writestr("d/train.txt", "0\ta\n")
    assert unpacked(tmp_path / "a.zip", tmp_path / "out") == {"d/train.txt": b"0\ta\n"}


@pytest.mark.parametrize("name", ["../up.txt", "/etc/up.txt", "a/../../up.txt"])
def test_a_member_outside_the_folder_is_refused(tmp_path, name):
    path = tar(tmp_path / "a.tar.gz", (name, b"x", tarfile.REGTYPE))
    with pytest.raises(DataError, match="outside the archive's folder"):
        archive.unpack(path, tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as output:
        output.writestr(name, "x")
    with pytest.raises(DataError, match="outside the archive's folder"):
        archive.unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "up.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_of_a_tar_are_refused(tmp_path, kind):
    path = tar(tmp_path / "a.tar.gz", ("evil", b"", kind))
    with pytest.raises(DataError, match="link or a device"):
        archive.unpack(path, tmp_path / "out")


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as output:
        info = zipfile.ZipInfo("evil")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        output.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="link or a device"):
        archive.unpack(tmp_path / "a.zip", tmp_path / "out")


def test_an_archive_larger_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    path = tar(tmp_path / "a.tar.gz", ("big", b"0" * 101, tarfile.REGTYPE))
    with pytest.raises(DataError, match="too large"):
        archive.unpack(path, tmp_path / "out")


def test_a_damaged_archive_is_bad_data(tmp_path):
    path = tar(tmp_path / "a.tar.gz", ("a", bytes(range(256)) * 400, tarfile.REGTYPE))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="damaged"):
        archive.unpack(path, tmp_path / "out")
