"""`paddle recordio`, and the names that providers import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle.command import main
from paddle.trainer import recordio

ROOT = Path(__file__).parents[3]
LINES = [f"line {i}" for i in range(300)]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    arguments = ["text", "--name_prefix=train", "--line_count=200", "--max_chunk_bytes=1000", "--compressor=none"]
    assert main(["recordio", "convert", *arguments]) == 0
    return [tmp_path / "train-00000", tmp_path / "train-00001"]


def test_show_lists_the_chunks(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["recordio", "show", *map(str, shards)]) == 0
    first, head, *rows = capsys.readouterr().out.splitlines()
    assert first == f"{shards[0]}: 200 records in 2 chunks, {shards[0].stat().st_size} bytes, none"
    assert head.split() == ["chunk", "offset", "bytes", "records", "compressor"]
    assert [row.split() for row in rows[:2]] == [["0", "0", "1546", "138", "none"], ["1", "1566", "744", "62", "none"]]
    assert rows[2].startswith(f"{shards[1]}: 100 records in 1 chunk, ")


def test_check_names_every_damaged_chunk_and_goes_on(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recordio", "check", *map(str, shards)]) == 0
    assert f"{shards[1]}: 100 records in 1 chunk, none of them damaged\n" in capsys.readouterr().out
    content = bytearray(shards[0].read_bytes())
    content[30] ^= 1
    content[2000] ^= 1
    shards[0].write_bytes(content)
    assert main(["recordio", "check", "absent", *map(str, shards)]) == 65
    shown = capsys.readouterr()
    assert shown.out == f"{shards[1]}: 100 records in 1 chunk, none of them damaged\n"
    absent, first, second = shown.err.splitlines()
    assert absent.startswith("paddle recordio: the RecordIO file absent cannot be read")
    assert first.startswith(f"paddle recordio: {shards[0]}: chunk 0 at byte 0: the CRC-32")
    assert second.startswith(f"paddle recordio: {shards[0]}: chunk 1 at byte 1566: the CRC-32")
    assert main(["recordio", "check", "absent", str(shards[1])]) == 66


def test_check_ends_a_file_at_a_damaged_header(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    shards[0].write_bytes(shards[0].read_bytes()[:1572])
    assert main(["recordio", "check", str(shards[0])]) == 65
    assert "chunk 1 at byte 1566: the file ends 14 bytes before" in capsys.readouterr().err
    assert main(["recordio", "show", str(shards[0])]) == 65


def test_records_become_the_same_lines_again(shards: list[Path], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    capsysbinary.readouterr()
    assert main(["recordio", "convert", "--to=lines", *map(str, shards)]) == 0
    assert capsysbinary.readouterr().out == Path("text").read_bytes()
    assert main(["recordio", "convert", "--to=lines", *map(str, shards), "-o", "again"]) == 0
    assert Path("again").read_bytes() == Path("text").read_bytes()


def test_lines_are_complete_or_not_there(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    with recordio.writer("odd", recordio.Compression.GZIP) as writer:
        writer.write(b"a")
        writer.write(b"b\nc")
    before = sorted(path.name for path in Path().iterdir())
    assert main(["recordio", "convert", "--to=lines", "odd", "-o", "again"]) == 65
    assert "odd: record 1 (counted from 0) has several lines; read it by a program" in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == before
    assert main(["recordio", "convert", "--to=lines", "odd", "-o", "absent/again"]) == 74


def test_lines_replace_a_file_only_when_told_to(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["recordio", "convert", "--to=lines", "train-00000", "train-00001", "-o"]
    Path("link").symlink_to("target")
    Path("target").write_text("mine")
    for name in ("link", "target"):
        assert main([*command, name]) == 64
        assert f"{name} exists already; name another file with -o, or replace the file" in capsys.readouterr().err
    assert Path("target").read_text() == "mine"
    assert main([*command, "link", "--overwrite"]) == 0
    assert Path("link").is_symlink() and Path("target").read_bytes() == Path("text").read_bytes()


def test_lines_never_replace_what_is_read(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = shards[1].read_bytes()
    Path("link").symlink_to(shards[1])
    command = ["recordio", "convert", "--to=lines", "--overwrite", "train-00000", "train-00001", "-o"]
    for name in ("train-00001", "link"):
        assert main([*command, name]) == 64
        assert f"-o {name} is one of the FILEs that are read; name another" in capsys.readouterr().err
    assert shards[1].read_bytes() == before and Path("link").is_symlink()


def test_lines_go_to_a_regular_file_alone(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    for name, reason in {"pipe": "Is no regular file", ".": "Is a directory", "/": "Is a directory"}.items():
        assert main(["recordio", "convert", "--to=lines", "--overwrite", "train-00000", "-o", name]) == 74
        assert f"paddle recordio: cannot write {name}: {reason}; name a file" in capsys.readouterr().err
    assert Path("pipe").is_fifo()


def test_a_file_of_the_other_kind_is_named(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recordio", "convert", "train-00000", "--name_prefix=new"]) == 65
    assert "paddle recordio: train-00000 is a RecordIO file, and no text; make lines" in capsys.readouterr().err
    assert not list(Path().glob("*new*"))
    assert main(["recordio", "show", "text"]) == 65
    assert capsys.readouterr().err.startswith("paddle recordio: text is no RecordIO file: it begins with b'line 0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required"),
        (["convert", "text", "--max_chunk_bytes=0"], "--max_chunk_bytes: 0 is no whole number in [1, 268435456]"),
        (["convert", "text", "--line_count=x"], "--line_count: x is no whole number in [1, "),
        (["convert", "text", "-o", "x"], "-o names the file for lines: add --to=lines"),
        (["convert", "text", "--name_prefix=train"], "train-00000 exists already"),
    ],
)
def test_a_wrong_command_line_is_64(
    arguments: list[str], said: str, shards: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recordio", *arguments]) == 64
    assert said in capsys.readouterr().err


def test_scripts_read_files_and_ranges_of_records(shards: list[Path]) -> None:
    assert [one.decode() for one in recordio.reader(shards[0])] == LINES[:200]
    some = recordio.index(shards[0]).range(150, 20)
    assert [one.decode() for one in recordio.reader(str(some))] == LINES[150:170]
    reader = recordio.reader(str(shards[1]))
    assert reader.read() == LINES[200].encode()
    reader.close()


def test_a_file_of_the_users_with_our_name_hides_nothing(tmp_path: Path) -> None:
    """The user's directory comes first on the path when a provider is imported."""
    (tmp_path / "recordio.py").write_text("raise ImportError('the wrong one')\n")
    (tmp_path / "my_provider.py").write_text(
        "from paddle.trainer.PyDataProvider2 import *\n"
        "from paddle.trainer.recordio import reader\n"
        "@provider(input_types=[integer_value(9)])\n"
        "def process(settings, name):\n"
        "    for record in reader(name):\n"
        "        yield int(record)\n"
    )
    (tmp_path / "config.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "define_py_data_sources2('train.list', None, 'my_provider', 'process')\n"
        "settings(batch_size=4, learning_rate=0.1)\n"
        "label = data_layer('label', 9)\n"
        "outputs(classification_cost(fc_layer(embedding_layer(label, 3), 9, act=SoftmaxActivation()), label))\n"
    )
    (tmp_path / "train.list").write_text("numbers\n")
    with recordio.writer(tmp_path / "numbers") as writer:
        for number in range(8):
            writer.write(b"%d" % number)
    command = [sys.executable, "-m", "paddle", "train", "--config=config.py", "--num_passes=1", "--save_dir="]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Pass=0 Batch=2 samples=8" in done.stderr
