"""Parameter files and pass directories: exact bytes, all or nothing, and what is refused when loading."""

import errno
import io
import os
import re
import shutil
import struct
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from each import each

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig, TrainerConfig
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError, VolumeError
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.saves import pass_name
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config.scripts.python2 import use_directories
from trainer.flags import parse_flags
from trainer.merge_model import FLAGS, frame_config, merge
from trainer.storage import model_files
from trainer.storage.job_inputs import read_config
from trainer.storage.model_files import (
    decode_parameter,
    encode_parameter,
    prepare_save_directory,
    remove_pass,
    save_pass,
)
from trainer.storage.model_sources import find_config, find_merged_config, is_complete, load_model
from trainer.training.testing import list_models


def make_table():
    table = ParameterTable([ParameterConfig(name="w", size=3), ParameterConfig(name="s", size=1, is_static=True)])
    table["w"].value[:] = [1, -2, 0.5]
    table["s"].value[:] = 7
    return table


def load(directory, strategy="fail", **options):
    table = ParameterTable([ParameterConfig(name="w", size=3), ParameterConfig(name="s", size=1, is_static=True)])
    load_model(directory, table, strategy, Stream(1), **options)
    return table


def visible(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_pass_directory_has_the_legacys_files_and_bytes(tmp_path):
    save_pass(tmp_path / "out" / "pass-00000", make_table(), {"config.py": b"settings()", "helper.py": b"x = 1"})
    saved = tmp_path / "out" / "pass-00000"
    assert visible(saved) == ["config.py", "done", "helper.py", "path.txt", "s", "w"]
    assert (saved / "w").read_bytes() == struct.pack("<iIQ3f", 0, 4, 3, 1, -2, 0.5)
    assert (saved / "path.txt").read_bytes() == b"config.py"
    assert (saved / "config.py").read_bytes() == b"settings()"
    assert (saved / "done").read_text().startswith("paddle version: 0.10.0\n\twithGpu: false\n")
    assert visible(tmp_path / "out") == ["pass-00000"]


def test_without_a_config_there_is_no_path_file(tmp_path):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    assert visible(tmp_path / "pass-00000") == ["done", "s", "w"]


def test_a_directory_of_that_name_is_replaced_whole(tmp_path):
    (tmp_path / "pass-00000").mkdir()
    (tmp_path / "pass-00000" / "stale").write_text("x")
    save_pass(tmp_path / "pass-00000", make_table(), {})
    assert visible(tmp_path / "pass-00000") == ["done", "s", "w"]
    assert visible(tmp_path) == ["pass-00000"]


@pytest.mark.parametrize("name", ["pass-00000", ".pass-00000.writing", ".pass-00000.old"])
@pytest.mark.parametrize("is_link", [True, False])
def test_a_link_or_a_file_in_the_way_is_replaced_every_time(tmp_path, name, is_link):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("x")
    (tmp_path / "out").mkdir()
    for _ in range(2):
        if is_link:
            (tmp_path / "out" / name).symlink_to("../elsewhere")
        else:
            (tmp_path / "out" / name).write_text("x")
        save_pass(tmp_path / "out" / "pass-00000", make_table(), {})
        assert visible(tmp_path / "out") == ["pass-00000"]
        assert visible(tmp_path / "out" / "pass-00000") == ["done", "s", "w"]
        remove_pass(tmp_path / "out" / "pass-00000")
    assert visible(tmp_path / "elsewhere") == ["kept"]


def test_of_a_pass_that_was_moved_elsewhere_the_link_is_removed(tmp_path):
    save_pass(tmp_path / "elsewhere", make_table(), {})
    (tmp_path / "pass-00000").symlink_to("elsewhere")
    remove_pass(tmp_path / "pass-00000")
    assert visible(tmp_path) == ["elsewhere"]
    assert visible(tmp_path / "elsewhere") == ["done", "s", "w"]


@each("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
@each("fails_at", ["fsync", "mkdir", "rename"])
def test_a_failed_save_leaves_nothing_that_looks_complete(tmp_path, monkeypatch, number, fails_at):
    save_pass(tmp_path / "pass-00000", make_table(), {})

    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(
        *{"fsync": (os, "fsync"), "mkdir": (model_files.Path, "mkdir"), "rename": (model_files.Path, "rename")}[
            fails_at
        ],
        fail,
    )
    with pytest.raises(VolumeError, match=f"cannot save to .*pass-00001: {os.strerror(number)}"):
        save_pass(tmp_path / "pass-00001", make_table(), {})
    assert visible(tmp_path) == ["pass-00000"]


def test_a_file_where_the_directory_should_be_is_a_volume_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(VolumeError, match="cannot save to"):
        save_pass(tmp_path / "out" / "pass-00000", make_table(), {})


def test_a_save_directory_that_was_removed_is_made_again_with_a_word(tmp_path, capsys):
    save_dir = tmp_path / "output"
    model_files.prepare_save_directory(str(save_dir))
    save_pass(save_dir / "pass-00000", make_table(), {})
    assert "removed" not in capsys.readouterr().err
    shutil.rmtree(save_dir)
    save_pass(save_dir / "pass-00001", make_table(), {})
    assert f"{save_dir} has been removed since training began" in capsys.readouterr().err
    assert visible(save_dir) == ["pass-00001"]


def test_a_stale_handle_is_tried_again(tmp_path, monkeypatch):
    calls, real = [], os.fsync

    def stale_once(handle):
        calls.append(handle)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        real(handle)

    monkeypatch.setattr(os, "fsync", stale_once)
    save_pass(tmp_path / "pass-00000", make_table(), {})
    assert visible(tmp_path / "pass-00000") == ["done", "s", "w"]


def test_what_was_saved_is_loaded_static_parameters_too(tmp_path):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    table = load(tmp_path / "pass-00000", needs_done=True)
    assert table["w"].value.tolist() == [1, -2, 0.5]
    assert table["s"].value.tolist() == [7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "w is no parameter file: it has 0 bytes"),
        (struct.pack("<iIQ3f", 1, 4, 3, 1, 2, 3), "its header has version 1 and 4 bytes per value"),
        (struct.pack("<iIQ3d", 0, 8, 3, 1, 2, 3), "its header has version 0 and 8 bytes per value"),
        (
            struct.pack("<iIQ2f", 0, 4, 2, 1, 2),
            r"pass-00000/w: The size \(2\) in the file does not match the size \(3\) of the parameter: w",
        ),
        (struct.pack("<iIQ2f", 0, 4, 3, 1, 2), "w is cut off"),
    ],
)
def test_files_of_another_form_are_refused(tmp_path, content, message):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    (tmp_path / "pass-00000" / "w").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "pass-00000")


def fifo(path):
    os.mkfifo(path)


def zeros(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [fifo, zeros, Path.mkdir])
def test_a_parameter_file_that_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, make):
    """A FIFO was opened, which waits for somebody to write into it: for ever."""
    make(tmp_path / "w")
    with pytest.raises(MissingInputError, match=r"/w is no file; name a directory"):
        load(tmp_path)


@pytest.mark.parametrize("make", [fifo, zeros])
def test_a_model_or_its_mark_that_is_no_regular_file_is_refused(tmp_path, make):
    make(tmp_path / "path.txt")
    with pytest.raises(MissingInputError, match=r"path\.txt cannot be read; .* Is no regular file"):
        find_config("", str(tmp_path))
    with pytest.raises(DataError, match=r"neither a directory nor a regular file"):
        load(tmp_path / "path.txt")


def test_a_file_that_becomes_a_fifo_between_look_and_opening_is_refused(tmp_path, monkeypatch):
    (tmp_path / "w").write_bytes(b"")
    open_any = os.open

    def exchange(path, *arguments):
        (tmp_path / "w").unlink()
        os.mkfifo(tmp_path / "w")
        return open_any(path, *arguments)

    with monkeypatch.context() as patch:  # pytest itself opens the directory when it removes it
        patch.setattr(os, "open", exchange)
        with pytest.raises(OSError, match=r"Is no regular file: .*/w"):
            open_regular(tmp_path / "w")


def test_a_mark_that_names_no_file_is_bad_data(tmp_path):
    (tmp_path / "path.txt").write_bytes(b"\0\xff")
    with pytest.raises(DataError, match="holds no name of a config"):
        find_config("", str(tmp_path))


def test_no_more_is_read_than_the_parameter_has(tmp_path):
    save_pass(tmp_path / "p", make_table(), {})
    with (tmp_path / "p" / "w").open("ab") as file:
        file.truncate(1 << 43)
    assert load(tmp_path / "p")["w"].value.tolist() == [1, -2, 0.5]


def test_a_parameter_of_another_size_is_named_with_its_layer():
    data = struct.pack("<iIQ2f", 0, 4, 2, 1, 2)
    for name, layer in (("_hidden.w0", " of layer hidden"), ("_emb_1.wbias", " of layer emb_1"), ("shared", "")):
        with pytest.raises(DataError, match=f"of the parameter: {name}{layer}; another config saved this model: take"):
            decode_parameter(data, "out/x", name, 3)


def test_a_place_that_cannot_be_saved_to_is_a_volume_error_at_once(tmp_path, monkeypatch):
    prepare_save_directory(str(tmp_path / "new" / "output"))
    assert (tmp_path / "new" / "output").is_dir()
    (tmp_path / "file").write_text("")
    told = "a file has this name, or that of a directory above it: remove the file, or name another directory"
    for path in ("file", "file/output"):
        with pytest.raises(VolumeError, match=f"cannot save to .*{path}: .*; {told}"):
            prepare_save_directory(str(tmp_path / path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # nothing is refused to root
    with pytest.raises(VolumeError, match=r"new: it is not writable for uid \d+"):
        prepare_save_directory(str(tmp_path / "new"))


def test_missing_files_fail_or_are_made_up(tmp_path, capsys):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    (tmp_path / "pass-00000" / "w").unlink()
    with pytest.raises(MissingInputError, match="w missing, not allowed"):
        load(tmp_path / "pass-00000")
    assert load(tmp_path / "pass-00000", "zero")["w"].value.tolist() == [0, 0, 0]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ", 1)[1] for line in lines[-3:]] == [
        f"missing parameters [{tmp_path}/pass-00000/w] while loading model.",
        "w missing, set to zero.",
        "w set to 0",
    ]
    drawn = load(tmp_path / "pass-00000", "rand")["w"].value
    assert np.abs(drawn).max() > 0


def test_missing_directories_and_marks_are_missing_inputs(tmp_path):
    with pytest.raises(MissingInputError, match="there is no model directory"):
        load(tmp_path / "pass-00000")
    save_pass(tmp_path / "pass-00000", make_table(), {})
    (tmp_path / "pass-00000" / "done").unlink()
    load(tmp_path / "pass-00000")
    with pytest.raises(MissingInputError, match="has no file 'done'"):
        load(tmp_path / "pass-00000", needs_done=True)


def test_removing_a_pass_says_so_and_is_quiet_where_there_is_none(tmp_path, capsys):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    remove_pass(tmp_path / "pass-00000")
    remove_pass(tmp_path / "pass-00000")
    assert visible(tmp_path) == []
    assert capsys.readouterr().err.count("delete dir") == 1


def test_pass_names():
    assert (pass_name(7), pass_name(7, 12)) == ("pass-00007", "pass-00007-012")


def test_the_config_is_the_one_named_or_the_models(tmp_path):
    assert find_config("a.py", "") == "a.py"
    (tmp_path / "path.txt").write_text("b.py")
    assert find_config("", str(tmp_path)) == str(tmp_path / "b.py")
    with pytest.raises(MissingInputError, match="no valid config"):
        find_config("", "")


def test_a_model_that_is_not_there_is_said_first(tmp_path):
    with pytest.raises(MissingInputError, match=r"^\S+nofile\.paddle does not exist; no valid config: "):
        find_config("", str(tmp_path / "nofile.paddle"))


def test_a_missing_parameter_is_told_with_what_is_there_and_what_to_do(tmp_path):
    """It was `w missing, not allowed.`: issue E 19."""
    saved = tmp_path / "pass-00000"
    table = ParameterTable([ParameterConfig(name="_fc.w0", size=3), ParameterConfig(name="_fc.wbias", size=1)])
    save_pass(saved, table, {"config.py": b"settings()"})
    wanted = ParameterTable([ParameterConfig(name="_fc_1.w0", size=3)])
    with pytest.raises(MissingInputError) as caught:
        load_model(saved, wanted, "fail", Stream(1))
    assert str(caught.value) == (
        f"_fc_1.w0 missing, not allowed: {saved} has no such parameter; it has _fc.w0, _fc.wbias (did a layer or "
        "ParamAttr change its name from _fc.w0?); name the model of this config, or give "
        "--load_missing_parameter_strategy=rand (random values) or =zero"
    )


def test_a_directory_without_parameters_and_one_with_many_say_so(tmp_path):
    with pytest.raises(MissingInputError, match=r"has no such parameter; it has none; name the model"):
        load(tmp_path)
    many = ParameterTable([ParameterConfig(name=f"p{number:02}", size=1) for number in range(30)])
    save_pass(tmp_path / "many", many, {})
    with pytest.raises(MissingInputError, match=r"it has p00, p01, p02, p03, p04, p05, p06, p07 and 22 more; name"):
        load(tmp_path / "many")


def test_a_directory_of_passes_is_asked_about_with_the_newest_complete_one(tmp_path):
    """It was advised to draw random values."""
    for name in ("pass-00002", "pass-00010-003", "pass-00010", "pass-00009"):
        save_pass(tmp_path / name, make_table(), {"config.py": b"settings()"})
    (tmp_path / "pass-00011").mkdir()
    (tmp_path / "pass-00012.damaged").mkdir()
    meant = rf"\(did you mean {tmp_path}/pass-00010\?\)"
    asked = rf"^{tmp_path} contains passes, but is not a pass {meant}; name one of the passes$"
    with pytest.raises(MissingInputError, match=asked):
        load(tmp_path)
    with pytest.raises(MissingInputError, match=asked):
        find_config("", str(tmp_path))
    with pytest.raises(MissingInputError, match=asked):
        merge([f"--model_dir={tmp_path}", f"--model_file={tmp_path / 'merged'}"])
    assert load(tmp_path, "zero")["w"].value.tolist() == [0, 0, 0]
    with pytest.raises(MissingInputError, match="no valid config"):
        find_config("", str(tmp_path / "pass-00011"))


def test_a_model_with_too_long_a_name_is_a_missing_input(tmp_path):
    """Path.is_file raises for such a name, and the program ended with a traceback."""
    model = str(tmp_path / ("m" * 256))
    reads = (load, is_complete, lambda path: find_config("", path), lambda path: find_merged_config("", path))
    for read in (*reads, lambda path: merge([f"--model_dir={path}", f"--model_file={tmp_path / 'merged'}"])):
        with pytest.raises(MissingInputError, match=r"mmm.* cannot be looked up; .*: File name too long$"):
            read(model)


def test_a_model_on_a_sick_volume_is_a_volume_error(tmp_path, monkeypatch):
    def fail(_path, **_options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(type(tmp_path), "stat", fail)
    with pytest.raises(VolumeError, match=r"cannot be looked up; .*: Input/output error; check the volume"):
        load(tmp_path / "pass-00000")


def test_a_config_whose_name_is_not_utf_8_is_saved_and_found_again(tmp_path):
    """The save raised UnicodeEncodeError, and the pass was lost."""
    name = os.fsdecode(b"c\xff.py")
    save_pass(tmp_path / "pass-00000", make_table(), {name: b"settings()"})
    assert (tmp_path / "pass-00000" / "path.txt").read_bytes() == b"c\xff.py"
    assert find_config("", str(tmp_path / "pass-00000")) == str(tmp_path / "pass-00000" / name)


def test_a_list_of_models_that_is_a_pipe_or_device_is_refused_at_once(tmp_path):
    """The test job waited for ever for a writer of the pipe, or used up the memory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        parts = SimpleNamespace(flags=parse_flags(["--job=test", f"--model_list={path}"]))
        with pytest.raises(MissingInputError, match=f"--model_list={path} cannot be read: Is no regular file"):
            list_models(parts)


@pytest.fixture
def importing(tmp_path, monkeypatch):
    """A pass directory with a config that imports a module, which lies in `beside`, and the arguments to merge it."""
    script = "from my_helper import SIZE\ndata_layer('x', SIZE)\nsettings(batch_size=1)\n"
    script = f"from paddle.trainer_config_helpers import *\n{script}"
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "my_helper.py").write_text("SIZE = 3")
    (beside / "config.py").write_text(script)
    (tmp_path / "pass-00000").mkdir()
    (tmp_path / "pass-00000" / "path.txt").write_text("config.py")
    (tmp_path / "pass-00000" / "config.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield ["--model_dir=pass-00000", "--model_file=merged"]
    use_directories(forget=True)


@pytest.mark.parametrize(
    "flag", ["--python_path=beside", "--config=beside/config.py", "--config_file=beside/config.py"]
)
def test_a_config_that_imports_what_lay_beside_it_is_merged_with_a_flag(importing, flag):
    merge([*importing, flag])
    merged = find_merged_config("", "merged")
    assert merged is not None
    assert [layer.size for layer in merged.model_config.layers] == [3]


def test_a_module_that_is_not_in_the_model_directory_is_asked_for(importing):
    with pytest.raises(DataError, match=r"config\.py line 2: .*my_helper.*--config=.*--python_path=.*my_helper"):
        merge(importing)
    with pytest.raises(DataError, match=r"config\.py line 2: .*my_helper.*--config=.*--python_path=.*my_helper"):
        read_config(parse_flags(["--job=test", "--init_model_path=pass-00000"]))


def test_a_failed_replacement_keeps_the_old_directory(tmp_path, monkeypatch):
    save_pass(tmp_path / "pass-00000", make_table(), {})
    real = model_files.Path.rename

    def fail_into_place(path, target):
        if path.name.endswith(".writing"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, target)

    monkeypatch.setattr(model_files.Path, "rename", fail_into_place)
    with pytest.raises(VolumeError):
        save_pass(tmp_path / "pass-00000", make_table(), {"new.py": b""})
    assert visible(tmp_path) == ["pass-00000"]
    assert visible(tmp_path / "pass-00000") == ["done", "s", "w"]


def test_without_a_model_the_config_is_that_of_the_first_pass_to_load(tmp_path):
    save_pass(tmp_path / "out" / "pass-00002", make_table(), {"b.py": b""})
    assert find_config("", "", str(tmp_path / "out"), 2) == str(tmp_path / "out" / "pass-00002" / "b.py")
    with pytest.raises(MissingInputError, match="no valid config"):
        find_config("", "", str(tmp_path / "out"), 3)


# ----- models in one file -----


def make_merged(path, table, *, names=("w", "s")):
    config = TrainerConfig()
    config.model_config.type = "nn"
    config.opt_config.MergeFrom(OptimizationConfig(batch_size=7, algorithm="sgd", learning_rate=1))
    for name in names:
        config.model_config.parameters.add(name=name, size=table[name].size)
    write_whole_file(path, [frame_config(config), *(part for name in names for part in encode_parameter(table[name]))])


def make_archive(path, table, mode):
    with tarfile.open(path, mode) as archive:
        for parameter in table:
            for name, content in (
                (parameter.name, b"".join(encode_parameter(parameter))),
                (f"{parameter.name}.protobuf", b"?"),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    "make",
    [
        make_merged,
        lambda path, table: make_archive(path, table, "w"),
        lambda path, table: make_archive(path, table, "w:gz"),
    ],
    ids=["merged", "tar", "tar.gz"],
)
def test_a_model_in_one_file_is_loaded_by_names(tmp_path, make):
    make(tmp_path / "model", make_table())
    table = load(tmp_path / "model")
    assert (table["w"].value.tolist(), table["s"].value.tolist()) == ([1, -2, 0.5], [7])


def test_a_parameter_that_the_file_has_not_is_made_up(tmp_path):
    make_merged(tmp_path / "merged", make_table(), names=["s"])
    with pytest.raises(MissingInputError, match="w missing, not allowed"):
        load(tmp_path / "merged")
    assert load(tmp_path / "merged", "zero")["s"].value.tolist() == [7]


def test_the_config_comes_with_a_merged_model_unless_a_script_is_named(tmp_path):
    merged, archive = tmp_path / "merged", tmp_path / "archive"
    make_merged(merged, make_table())
    make_archive(archive, make_table(), "w")
    assert find_merged_config("", str(merged)).opt_config.batch_size == 7
    assert find_merged_config("config.py", str(merged)) is None
    assert find_merged_config("", str(tmp_path)) is None
    assert find_merged_config("", "") is None
    with pytest.raises(MissingInputError, match=r"the archive .* has parameters only; give --config"):
        find_merged_config("", str(archive))


def cut(data):
    return data[:-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, "it is cut off at the parameter s"),
        (lambda data: data[:30], "cut off at the parameter w|not the length of a config|cannot be decoded"),
        (lambda data: b"", "its first eight bytes are not the length of a config"),
        (lambda data: b"text that is no model at all", "its first eight bytes are not the length of a config"),
        (lambda data: struct.pack("<q", 8) + b"\xff" * 90, "its config cannot be decoded"),
    ],
)
def test_files_that_are_no_models_are_a_data_error(tmp_path, change, message):
    make_merged(tmp_path / "merged", make_table())
    (tmp_path / "merged").write_bytes(change((tmp_path / "merged").read_bytes()))
    with pytest.raises(DataError, match=f"merged is neither a merged model nor a tar archive of parameters: {message}"):
        load(tmp_path / "merged")


def test_merge_model_names_only_flags_that_it_has(tmp_path, monkeypatch):
    """It named --init_model_path and --load_missing_parameter_strategy, flags of paddle train."""
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(
        "Settings(batch_size=1)\nLayer('x', 'data', size=1)\nLayer('f', 'fc', size=1, inputs='x')"
    )
    Path("importing.py").write_text("import nowhere")
    Path("empty").mkdir()
    for name, text in (("importing", "importing.py"), ("zero", "a\0b")):
        Path(name).mkdir()
        Path(name, "path.txt").write_text(text)
        Path(name, "importing.py").write_text("import nowhere")
    os.mkfifo("pipe")
    said = []
    for model, more in (
        ("empty", []),
        ("absent", []),
        ("importing", []),
        ("zero", []),
        ("empty", ["--config=config.py"]),
        ("empty", ["--config=absent.py"]),
        ("pipe", ["--config=config.py"]),
    ):
        with pytest.raises(PaddleError) as caught:
            merge([f"--model_dir={model}", "--model_file=merged", *more])
        said.append(str(caught.value))
    assert said[0] == "no valid config: give --config=..., or --model_dir of a directory with path.txt"
    assert {flag for text in said for flag in re.findall(r"--(\w+)", text)} <= set(FLAGS)
