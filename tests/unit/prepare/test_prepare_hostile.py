"""Input that was made to get at other files, or to fill disk, memory or time: refused, by name, with nothing left.

One row a case: what lies in the folder, what the run is told, and what it says. Each ends with 65.
"""

import bz2
import functools
import gzip
import io
import lzma
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest
from each import each

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.input import folder as folder_module
from paddle_cluster.prepare.input.folder import Folder
from paddle_cluster.prepare.program import main

EXAMPLES = Path(__file__).parents[3] / "examples"
SECRET = "root:secret"
LINES = b"0\tsome words\n" * 100_000  # 1.3 MB; the limits of the cases are 1 MiB


def run(out_dir, data, *flags, source="quick_start"):
    where = [f"--data_path={data}"] if data else []
    begin = [f"--out_dir={out_dir}", "--split_count=2", f"--data_source={source}", f"--examples_dir={EXAMPLES}"]
    return main([*begin, *where, *flags])


def refused(tmp_path, capsys, data, *flags, source="quick_start"):
    """Run on the data, see that nothing is left behind, and return what was said."""
    assert run(tmp_path / "job", data, *flags, source=source) == 65
    left = [path for path in (tmp_path / "job").rglob("*") if (tmp_path / "job").exists()]
    assert left == []
    return capsys.readouterr().err


# ----- links, and what is no file -----


def link(name, target):
    return lambda raw: (raw / name).symlink_to(str(target).format(raw=raw, outside=raw.parent / "outside"))


def links(**targets):
    return lambda raw: [link(name.replace("__", "."), target)(raw) for name, target in targets.items()]


def listening(raw):
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(raw)  # the address of a socket has at most 107 bytes
    try:
        listener.bind("train.txt")
    finally:
        os.chdir(here)
        listener.close()


OUT = "is a link that leads out of"
CIRCLE = "is a link that forms a loop"
NAMED = {
    "absolute link": (link("a.pos", "{outside}/secret"), f"a.pos {OUT}"),
    "relative link": (link("a.pos", "../outside/secret"), f"a.pos {OUT}"),
    "relative link out and in again": (link("a.pos", "../raw/a.neg"), f"a.pos {OUT}"),
    "absolute link through the folder": (link("a.pos", "{raw}/../outside/secret"), f"a.pos {OUT}"),
    "link to a link": (links(a__pos="b", b="{outside}/secret"), OUT),
    "link to a directory outside": (link("more", "../outside"), f"more {OUT}"),
    "file below a linked directory": (links(a__pos="d/secret", d="../outside"), OUT),
    "link below a directory": (lambda raw: [(raw / "d").mkdir(), link("d/a.pos", "../../outside/secret")(raw)], OUT),
    "link to the device of zeros": (link("a.pos", "/dev/zero"), f"a.pos {OUT}"),
    "link to the memory of the process": (link("a.pos", "/proc/self/environ"), f"a.pos {OUT}"),
    "link to itself": (link("a.pos", "a.pos"), f"a.pos {CIRCLE}"),
    "two links to each other": (links(a__pos="b", b="a.pos"), CIRCLE),
    "link to nothing": (link("a.pos", "nothing"), "a.pos is a link to a path that does not exist"),
    "FIFO": (lambda raw: os.mkfifo(raw / "train.txt"), "train.txt is a FIFO; only regular files are read"),
    "FIFO by a link": (lambda raw: [os.mkfifo(raw / "f"), link("a.pos", "f")(raw)], "a.pos is a FIFO"),
    "FIFO beside the data": (
        lambda raw: [(raw / "train.txt").write_text("0\ta\n"), os.mkfifo(raw / "notes")],
        "notes is a FIFO",
    ),
    "socket": (listening, "train.txt is a socket; only regular files are read"),
}


@each(("make", "message"), NAMED.values(), ids=NAMED)
def test_what_leads_out_of_the_folder_or_is_no_file_is_refused(tmp_path, capsys, make, message):
    raw, outside = tmp_path / "raw", tmp_path / "outside"
    raw.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(f"{SECRET}\n" * 10)
    (raw / "a.neg").write_text("a\nb\nc\n")
    make(raw)
    assert message in refused(tmp_path, capsys, raw)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (link("input", "{outside}/secret"), OUT),
        (link("input", "../outside"), OUT),
        (lambda raw: os.mkfifo(raw / "input"), "input is a FIFO"),
    ],
    ids=["link to a file", "link to a folder", "FIFO"],
)
def test_a_data_path_that_is_such_a_thing_is_refused(tmp_path, capsys, make, message):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(f"{SECRET}\n" * 10)
    (tmp_path / "raw").mkdir()
    make(tmp_path / "raw")
    for source in ("quick_start", "digits", "movielens"):
        assert message in refused(tmp_path, capsys, tmp_path / "raw" / "input", source=source)


@each("name", ["a.pos", "here", "./d/../a.pos", "d/up", "absolute", "..data/a.pos"])
def test_links_that_stay_inside_are_followed(tmp_path, name):
    """A mounted ConfigMap is made of them: its files lead to a hidden directory, which is a link itself."""
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "a.pos").write_text("words")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.pos").symlink_to("..data/a.pos")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to("../a.pos")
    links(here="a.pos", absolute=f"{tmp_path}/d/../a.pos")(tmp_path)
    with Folder(tmp_path) as folder, os.fdopen(folder.open(name)) as file:
        assert file.read() == "words"
        assert folder.files() == ["a.pos", "absolute", "d/up", "here"]


@pytest.mark.parametrize(
    ("exchanged", "look", "by"),
    [("d/a.pos", 1, "link"), ("d/a.pos", 2, "link"), ("d/a.pos", 2, "FIFO"), ("d", 1, "link")],
)
def test_what_is_exchanged_between_a_look_and_its_opening_is_not_read(tmp_path, monkeypatch, exchanged, look, by):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.pos").write_text(SECRET)
    place = tmp_path / "raw" / exchanged
    (tmp_path / "raw" / "d").mkdir(parents=True)
    (tmp_path / "raw" / "d" / "a.pos").write_text("words")
    stat, looks = os.stat, []

    def look_and_exchange(name, **options):
        facts = stat(name, **options)
        looks.append(Path(name).name)
        if looks.count(place.name) == look and looks[-1] == place.name:
            place.rename(tmp_path / "kept")
            if by == "FIFO":
                os.mkfifo(place)
            else:
                place.symlink_to(tmp_path / "outside" / exchanged.removeprefix("d").removeprefix("/"))
        return facts

    with Folder(tmp_path / "raw") as folder:
        monkeypatch.setattr(folder_module.os, "stat", look_and_exchange)
        with pytest.raises((OSError, DataError), match=r"is a link by now|is a FIFO|Not a directory|Too many levels"):
            folder.open("d/a.pos")
    assert (tmp_path / "kept").exists()


# ----- bombs -----


def one_file(name, make_content, *arguments):
    """A case whose file is made when the case runs: an import of this module compresses nothing."""

    def make(raw):
        (raw / name).write_bytes(make_content(*arguments))
        return raw / name

    return make


@functools.cache
def packed(pack, *options):
    return pack(LINES, *options)


def tarred(content, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        info = tarfile.TarInfo("d/a.pos")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/a.pos", content)
    return buffer.getvalue()


def nested(depth):
    def make(raw):
        here = Path.cwd()
        os.chdir(raw)
        try:
            for _ in range(depth):
                Path("d").mkdir()
                os.chdir("d")
            Path("a.pos").write_text("words\n")
        finally:
            os.chdir(here)

    return make


MEMORY, DISK = ("--data_max_memory=1Mi", "DATA_MAX_MEMORY"), ("--data_max_bytes=1Mi", "DATA_MAX_BYTES")
BOMBS = {
    "plain, in memory": (one_file("a.pos", lambda: LINES), *MEMORY, "a.pos: the input has more than 1048576 bytes"),
    "gzip, in memory": (one_file("a.pos", packed, gzip.compress), *MEMORY, "a.pos: the input has more"),
    "bzip2, in memory": (one_file("a.pos", packed, bz2.compress), *MEMORY, "a.pos: the input has more"),
    "xz, in memory": (
        one_file("a.pos", lambda: lzma.compress(LINES * 4, preset=0)),
        "--data_max_memory=4Mi",
        "4194304",
        "a.pos",
    ),
    "xz, its dictionary": (one_file("a.pos", lzma.compress, b"a\n"), *MEMORY, "a.pos: unpacking it needs more"),
    "gzip, in all": (one_file("a.pos", packed, gzip.compress), *DISK, "a.pos: the input has more than 1048576 bytes"),
    "bzip2, in all": (one_file("a.pos", packed, bz2.compress), *DISK, "a.pos: the input has more"),
    "xz, in all": (one_file("a.pos", packed, lzma.compress), *DISK, "a.pos: the input has more"),
    "gzip of many parts": (
        one_file("a.pos", lambda: gzip.compress(LINES[:600_000]) * 8),
        *DISK,
        "a.pos: the input has more",
    ),
    "tar": (one_file("a.tar", packed, tarred, "w"), *DISK, "a.tar: the input has more than 1048576 bytes"),
    "zip": (one_file("a.zip", packed, zipped), *DISK, "a.zip, member 'd/a.pos': the input has more"),
    "archive that fits the disk and not the memory": (one_file("a.zip", packed, zipped), *MEMORY, "d/a.pos: the input"),
    "a file beside the data": (
        lambda raw: [(raw / "train.txt").write_bytes(b"0\ta\n" * 4), (raw / "more").write_bytes(LINES), raw][-1],
        *MEMORY,
        "more: the input has more",
    ),
    "different words": (
        one_file("a.pos", lambda: " ".join(f"w{n}" for n in range(100_000)).encode()),
        *MEMORY,
        "the different words of the text",
    ),
    "a line": (
        one_file("a.pos", lambda: b"a" * 5_000_000),
        "--seed=1",
        "cut it into several",
        "a.pos line 1: it is longer",
    ),
    "a label": (
        one_file("a.txt", lambda: b"9" * 5_000 + b"\ta\n0\tb\n"),
        "--data_max_memory=1",
        "DATA_MAX_MEMORY",
        "a.txt",
    ),
    "directories": (nested(70), "--seed=1", "name a smaller folder", "directories are more than 64 deep"),
    "cut off": (
        one_file("a.pos", lambda: packed(gzip.compress)[:-100]),
        "--seed=1",
        "another copy",
        "a.pos is cut off",
    ),
    "damaged": (
        one_file("a.pos", lambda: packed(gzip.compress)[:-8] + b"x" * 8),
        "--seed=1",
        "another copy",
        "is damaged",
    ),
    "bytes behind": (
        one_file("a.pos", lambda: gzip.compress(b"a\n") + b"more"),
        "--seed=1",
        "another copy",
        "more bytes after",
    ),
}


@pytest.mark.parametrize(("make", "flag", "variable", "message"), BOMBS.values(), ids=BOMBS)
def test_what_is_larger_than_it_looks_is_refused(tmp_path, capsys, make, flag, variable, message):
    raw = tmp_path / "raw"
    raw.mkdir()
    said = refused(tmp_path, capsys, make(raw) or raw, flag, "--min_count=1")
    assert variable in said
    assert message in said


def test_a_folder_of_too_many_files_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(folder_module, "FILES", 10)
    (tmp_path / "raw").mkdir()
    for number in range(11):
        (tmp_path / "raw" / f"{number}.pos").write_text("words\n")
    assert "has more than 10 files; name a smaller folder" in refused(tmp_path, capsys, tmp_path / "raw")


def test_packed_files_are_read_as_what_they_hold(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.pos").write_bytes(gzip.compress(b"fine\n" * 4) + gzip.compress(b"good\n" * 4) + bytes(512))
    (raw / "a.neg").write_bytes(lzma.compress(b"bad\n" * 4) + bz2.compress(b"")[:0])
    assert run(tmp_path / "job", raw, "--test_fraction=0") == 0
    lines = [line for shard in "01" for line in (tmp_path / "job" / shard / "data/train.txt").read_text().splitlines()]
    assert sorted(lines) == ["0\tbad"] * 4 + ["1\tfine"] * 4 + ["1\tgood"] * 4


# ----- films -----


def films(folder, movies, ratings="1::1::5::0\n" * 4):
    folder.mkdir()
    (folder / "ratings.dat").write_text(ratings)
    (folder / "users.dat").write_text("1::F::1::10::48067\n")
    (folder / "movies.dat").write_text(movies)
    return folder


def test_a_film_of_200_000_genres_takes_no_time_that_grows_with_their_square(tmp_path):
    """Every genre was looked for in the list of the film's genres: hours. The test's own timeout is the check."""
    genres = "|".join(f"g{number}" for number in range(200_000))
    data = films(tmp_path / "ml", f"1::One (1990)::{genres}\n2::Two (1991)::g1\n")
    assert run(tmp_path / "job", data, "--test_fraction=0", source="movielens") == 0


def test_films_times_genres_that_would_fill_the_memory_are_refused(tmp_path, capsys):
    genres = "|".join(f"g{number}" for number in range(10_000))
    movies = f"1::One (1990)::{genres}\n" + "".join(f"{n}::More (1991)::g1\n" for n in range(2, 6_000))
    said = refused(tmp_path, capsys, films(tmp_path / "ml", movies), source="movielens")
    assert "movies.dat, 5999 films x 10000 genres: the input has more than 536870912 bytes" in said
    assert "DATA_MAX_MEMORY" in said


@pytest.mark.parametrize("ratings", ["9" * 5000 + "::1::5::0\n", "1::1::" + "5" * 5000 + "::0\n"])
def test_a_number_of_5000_digits_is_bad_data(tmp_path, capsys, ratings):
    """Python refuses to read it, which was a traceback."""
    said = refused(tmp_path, capsys, films(tmp_path / "ml", "1::One (1990)::g\n", ratings), source="movielens")
    assert "line 1: not four whole numbers" in said


# ----- the config directory -----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (link("loop", "."), CIRCLE),
        (lambda raw: [(raw / "d").mkdir(), link("d/up", "..")(raw)], CIRCLE),
        (link("more", "{outside}"), OUT),
        (lambda raw: os.mkfifo(raw / "pipe"), "pipe is a FIFO"),
    ],
    ids=["loop", "loop below", "link out", "FIFO"],
)
def test_a_config_directory_that_cannot_be_copied_is_refused(tmp_path, capsys, make, message):
    """`loop -> .` was copied until the file system refused the length of the name."""
    mine, outside = tmp_path / "examples" / "quick_start", tmp_path / "examples" / "outside"
    mine.mkdir(parents=True)
    outside.mkdir()
    (mine / "trainer_config.py").write_text("")
    make(mine)
    said = refused(tmp_path, capsys, "", f"--examples_dir={tmp_path / 'examples'}", source="synthetic")
    assert message in said


def test_a_config_directory_keeps_its_links_that_stay_inside(tmp_path):
    mine = tmp_path / "examples" / "quick_start"
    (mine / "common").mkdir(parents=True)
    (mine / "common" / "shared.py").write_text("shared")
    (mine / "trainer_config.py").symlink_to("common/shared.py")
    (mine / "again").symlink_to("common")
    assert run(tmp_path / "job", "", f"--examples_dir={tmp_path / 'examples'}", source="synthetic") == 0
    made = tmp_path / "job" / "quick_start"
    assert [(made / name).read_text() for name in ("trainer_config.py", "again/shared.py")] == ["shared", "shared"]


def test_a_farm_of_links_is_counted_and_not_copied(tmp_path, monkeypatch):
    """Two links a directory, thirty directories: a thousand million copies without a loop."""
    monkeypatch.setattr(folder_module, "FILES", 1000)
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
        links(a=f"../{number + 1}", b=f"../{number + 1}")(tmp_path / f"{number}")
    (tmp_path / "30").mkdir()
    with Folder(tmp_path) as folder, pytest.raises(DataError, match="more than 1000 files"):
        folder.files(linked=True)
