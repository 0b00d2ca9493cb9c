"""Archives are unpacked inside one folder, or refused."""

import io
import os
import stat
import tarfile
import zipfile
from contextlib import closing

import pytest
from each import each

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.input import archive, tar
from paddle_cluster.prepare.limits import disk_meter, memory_meter

PLENTY = 1 << 30


def make_tar(path, *members, mode="w:gz", **options):
    with tarfile.open(path, mode, **options) as output:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, "/etc/passwd", len(content)
            output.addfile(info, io.BytesIO(content))
    return path


def make_zip(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as output:
        for name, content in members.items():
            output.writestr(name, content)
    return path


def unpack(path, folder, disk=PLENTY, memory=PLENTY):
    with closing(io.FileIO(path)) as file:
        return archive.unpack_if_archive(file.fileno(), path.name, folder, disk_meter(disk), memory_meter(memory))


def unpacked(path, folder):
    assert unpack(path, folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


FILES = (("d", b"", tarfile.DIRTYPE), ("d/train.txt", b"0\ta\n" * 500, tarfile.REGTYPE), ("e", b"", tarfile.REGTYPE))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_gives_its_plain_files(tmp_path, mode, kind):
    path = make_tar(tmp_path / "a.tar", *FILES, mode=mode, format=kind)
    assert unpacked(path, tmp_path / "out") == {"d/train.txt": b"0\ta\n" * 500, "e": b""}


@each("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@each("name", ["d/" + "n" * 90 + "/" + "f" * 60, "ümläut.txt"])
def test_a_tar_gives_long_and_foreign_names(tmp_path, kind, name):
    path = make_tar(tmp_path / "a.tar", (name, b"x", tarfile.REGTYPE), ("b", b"y", tarfile.REGTYPE), format=kind)
    assert unpacked(path, tmp_path / "out") == {name: b"x", "b": b"y"}


def test_a_zip_gives_its_plain_files(tmp_path):
    path = make_zip(tmp_path / "a.zip", **{"d/train.txt": "0\ta\n"})
    assert unpacked(path, tmp_path / "out") == {"d/train.txt": b"0\ta\n"}


def test_an_empty_archive_is_an_empty_folder(tmp_path):
    assert unpacked(make_zip(tmp_path / "a.zip"), tmp_path / "out") == {}


@pytest.mark.parametrize("content", [b"", b"0\ta\n", bytes(2000), b"PK", os.urandom(2000)])
def test_what_is_no_archive_is_left_as_it_is(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    assert not unpack(tmp_path / "a.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../up.txt", "/etc/up.txt", "a/../../up.txt", "a\\..\\up.txt"])
def test_a_member_outside_the_folder_is_refused(tmp_path, name):
    path = make_tar(tmp_path / "a.tar.gz", (name, b"x", tarfile.REGTYPE))
    with pytest.raises(DataError, match="outside the folder of the archive"):
        unpack(path, tmp_path / "out")
    with pytest.raises(DataError, match="outside the folder of the archive"):
        unpack(make_zip(tmp_path / "a.zip", **{name: "x"}), tmp_path / "out2")
    assert not (tmp_path / "up.txt").exists()


@each(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "link or a device"),
        (tarfile.LNKTYPE, "link or a device"),
        (tarfile.FIFOTYPE, "link or a device"),
        (tarfile.CHRTYPE, "link or a device"),
        (tarfile.BLKTYPE, "link or a device"),
        (b"M", "link or a device"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
    ],
)
def test_links_devices_and_sparse_files_of_a_tar_are_refused(tmp_path, kind, what):
    path = make_tar(tmp_path / "a.tar.gz", ("evil", b"", kind))
    with pytest.raises(DataError, match=what):
        unpack(path, tmp_path / "out")


def test_a_sparse_file_of_pax_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as output:
        info = tarfile.TarInfo("holes")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 60)}
        output.addfile(info)
    with pytest.raises(DataError, match="sparse"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as output:
        info = zipfile.ZipInfo("evil")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        output.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="link or a device"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_an_encrypted_member_of_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as output:
        output.writestr("a.txt", b"a line")
    whole = bytearray((tmp_path / "a.zip").read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        whole[whole.index(mark) + place] |= 1
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(DataError, match=r"'a\.txt' is encrypted; make the archive without a password"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_cannot_be_unpacked_piece_by_piece_is_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as output:
        output.writestr("a.txt", bytes(1000))
    with pytest.raises(DataError, match="make the archive with deflate, or as a tar"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_larger_than_the_limit_is_refused(tmp_path, mode):
    path = make_tar(tmp_path / "a.tar", ("big", bytes(10_000_000), tarfile.REGTYPE), mode=mode)
    with pytest.raises(DataError, match=r"a\.tar: the input has more than 5000000 bytes .* DATA_MAX_BYTES"):
        unpack(path, tmp_path / "out", disk=5_000_000)
    assert sum(file.stat().st_size for file in (tmp_path / "out").rglob("*")) <= 5_000_000


def test_a_list_of_members_that_would_fill_the_memory_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", **{f"{number:0100}": "" for number in range(10_000)})
    with pytest.raises(DataError, match=r"list of members has .* DATA_MAX_MEMORY to 16 times"):
        unpack(path, tmp_path / "out", memory=1 << 20)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_a_name_that_would_fill_the_memory_is_refused(tmp_path, kind):
    """The standard library reads the header before a member, of any size, in one piece."""
    header = tarfile.TarInfo("name")
    header.type, header.size = kind, 4 << 30
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(DataError, match="attributes of a member have 4294967296 bytes"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def header(kind, size=0, name="name", **records):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.pax_headers = kind, size, records
    return info.tobuf(tarfile.PAX_FORMAT)


ENDLESS = {
    "headers before a header": header(b"L") * 5000,
    "the map of a sparse file": header(tarfile.REGTYPE, 1 << 40, **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    + b"9" * 3_000_000,
    "the map of a sparse file in headers": header(tarfile.REGTYPE, **{"GNU.sparse.map": "0,1," * 30_000}),
}


@pytest.mark.parametrize("content", ENDLESS.values(), ids=ENDLESS)
def test_headers_without_an_end_are_refused(tmp_path, content):
    """tarfile reads them to their end, and calls itself for a header that follows a header."""
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.tar is damaged"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_wrong_header_in_the_middle_does_not_end_the_archive(tmp_path):
    """tarfile takes it for the end, and gives the members before it without an error."""
    path = make_tar(tmp_path / "a.tar", *((name, b"x", tarfile.REGTYPE) for name in "abc"), mode="w")
    content = bytearray(path.read_bytes())
    content[1024] ^= 1  # in the name of the second member
    path.write_bytes(content)
    with pytest.raises(DataError, match="the header of a member is cut off or has a wrong checksum"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("members", [("a", "a/b"), ("a/b", "a"), ("n" * 300,), ("/".join("d" * 80),)])
def test_names_that_no_file_system_takes_are_bad_data_and_no_fault_of_the_volume(tmp_path, members):
    path = make_tar(tmp_path / "a.tar", *((name, b"x", tarfile.REGTYPE) for name in members))
    with pytest.raises(DataError, match="rename it"):
        unpack(path, tmp_path / "out")


def test_an_archive_of_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FILES", 10)
    monkeypatch.setattr(tar, "FILES", 10)
    path = make_tar(tmp_path / "a.tar", *((f"{number}", b"", tarfile.REGTYPE) for number in range(30)))
    with pytest.raises(DataError, match="more than 10 members"):
        unpack(path, tmp_path / "out")
    with pytest.raises(DataError, match="more than 10 members"):
        unpack(make_zip(tmp_path / "a.zip", **{f"{number}": "" for number in range(30)}), tmp_path / "out2")


@pytest.mark.parametrize("length", [300, 513, 1000])
def test_a_damaged_archive_is_bad_data(tmp_path, length):
    for mode in ("w:gz", "w"):
        path = make_tar(tmp_path / "a.tar", ("a", os.urandom(50_000), tarfile.REGTYPE), mode=mode)
        path.write_bytes(path.read_bytes()[: length + 400])
        with pytest.raises(DataError, match=r"damaged|cut off"):
            unpack(path, tmp_path / f"out{mode[2:]}")


def test_a_flipped_bit_anywhere_gives_files_or_bad_data(tmp_path):
    tar_file = make_tar(tmp_path / "a.tar", *FILES, mode="w").read_bytes()
    zip_file = make_zip(tmp_path / "a.zip", **{"d/a": "0\ta\n" * 50, "b": "x"}).read_bytes()
    for content, places in ((tar_file[:2100], range(0, 2100, 7)), (zip_file, range(len(zip_file)))):
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 1 << place % 8
            (tmp_path / "damaged").write_bytes(damaged)
            try:
                unpack(tmp_path / "damaged", tmp_path / f"out-{len(content)}-{place}")
            except DataError as error:
                assert str(error)
