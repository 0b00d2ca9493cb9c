"""The syntax of gflags: spellings, types, bounds, and the messages that all programs share."""

import re

import pytest
from each import each

from paddle_base.runtime import glog
from paddle_base.runtime.errors import MissingInputError, UsageError
from paddle_base.runtime.gflags import Flag, Status, index_flags, read_arguments, read_pairs, read_seconds, suggest_flag

FLAGS = index_flags(
    Flag("num_passes", 100, Status.SUPPORTED, "passes", 0),
    Flag("seed", 1, Status.SUPPORTED, "seed"),
    Flag("local", True, Status.SUPPORTED, "alone"),
    Flag("eps", 1e-5, Status.SUPPORTED, "change"),
    Flag("ratio", 1.5, Status.SUPPORTED, "ratio", most=2),
    Flag("timeout", 60.0, Status.SUPPORTED, "seconds", 0, 86400),
    Flag("job", "train", Status.SUPPORTED, "job", choices=("train", "test")),
    Flag("comment", "", Status.QUIET, "text"),
)

SPELLINGS = {
    "nothing": ([], {}),
    "an equals sign": (["--num_passes=3"], {"num_passes": 3}),
    "two arguments": (["--num_passes", "3"], {"num_passes": 3}),
    "one dash": (["-num_passes=3"], {"num_passes": 3}),
    "a flag alone is true": (["--local"], {"local": True}),
    "a negated flag is false": (["--nolocal"], {"local": False}),
    "the last one counts": (["--local", "--nolocal", "--local=YES"], {"local": True}),
    "a negative number is a value": (["--seed", "-1"], {"seed": -1}),
    "a value that looks like a flag": (["--comment", "--seed"], {"comment": "--seed"}),
    "a value with equals signs and blanks": (["--comment=a=b c\nd"], {"comment": "a=b c\nd"}),
    "an empty value": (["--comment="], {"comment": ""}),
    "a whole number for another": (["--timeout=3"], {"timeout": 3.0}),
    "the order is that of the arguments": (["--seed=2", "--eps=1", "--seed=3"], {"seed": 3, "eps": 1.0}),
}


@pytest.mark.parametrize(("arguments", "given"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_flag_has_the_spellings_of_gflags(arguments, given):
    values = read_arguments(arguments, FLAGS)
    assert list(values.items()) == list(given.items())
    assert [type(value) for value in values.values()] == [type(value) for value in given.values()]


MESSAGES = {
    "train": "Unknown commandline argument: train; write flags as --name=value",
    "-": "Unknown commandline argument: -;",
    "--": "Unknown commandline argument: --;",
    "---seed=1": "Unknown commandline argument: ---seed=1;",
    "--=3": "Unknown commandline argument: --=3;",
    "--num_pases=3": "unknown command line flag 'num_pases'; did you mean --num_passes?",
    "--num-passes=3": "unknown command line flag 'num-passes'; did you mean --num_passes?",
    "--xyzzy": "unknown command line flag 'xyzzy'; --help lists all",
    "--noseed": "unknown command line flag 'noseed'; did you mean --seed?",
    "--nolocal=1": "--nolocal=1: a negated flag takes no value; write --nolocal or --local=1",
    "--seed": "--seed needs a value: --seed=...",
    "--seed=ten": "--seed is 'ten'; it must be a whole number",
    "--seed=1.5": "--seed is '1.5'; it must be a whole number",
    "--seed=2147483648": "--seed is 2147483648; it must be in [-2147483648, 2147483647]",
    "--num_passes=-1": "--num_passes is -1; it must be in [0, 2147483647]",
    "--local=maybe": "--local is 'maybe'; it must be true or false",
    "--eps=x": "--eps is 'x'; it must be a finite number",
    "--eps=inf": "--eps is 'inf'; it must be a finite number",
    "--eps=nan": "--eps is 'nan'; it must be a finite number",
    "--ratio=3": "--ratio is 3.0; it must be at most 2",
    "--timeout=-1": "--timeout is -1.0; it must be in [0, 86400]",
    "--job=dance": "--job is 'dance'; it must be one of train, test",
}


@each(("argument", "message"), MESSAGES.items(), ids=MESSAGES.keys())
def test_what_is_wrong_is_said(argument, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        read_arguments([argument], FLAGS)


PAIRS = {
    "nothing": ([], []),
    "three spellings": (["--a=1", "--b", "2", "-c=3"], [("a", "1"), ("b", "2"), ("c", "3")]),
    "a flag alone is true": (["--use_gpu", "--a=1"], [("use_gpu", "true"), ("a", "1")]),
    "a negated flag is false, and takes no value": (["--nolocal", "--a=1"], [("local", "false"), ("a", "1")]),
    "no alone is a name": (["--no"], [("no", "true")]),
    "a negative number is a value": (["--test_pass", "-1"], [("test_pass", "-1")]),
}


@pytest.mark.parametrize(("arguments", "pairs"), PAIRS.values(), ids=PAIRS.keys())
def test_flags_can_be_read_without_their_table(arguments, pairs):
    assert read_pairs(arguments) == pairs


@pytest.mark.parametrize("arguments", [["train"], ["--a=1", "2"], ["--nolocal", "1"], ["--9=3"]], ids=str)
def test_without_a_table_what_is_no_flag_is_refused(arguments):
    with pytest.raises(UsageError, match="Unknown commandline argument: "):
        read_pairs(arguments)


@pytest.mark.parametrize(
    ("text", "seconds"), [("16s", 16), ("1h30m", 5400), ("2.5", 2.5), ("1m0.5s", 60.5), ("20m", 1200), ("0", 0)]
)
def test_times(text: str, seconds: float) -> None:
    assert read_seconds("ttl", text) == seconds


@each("text", ["", "s", "-1", "-1s", "1d", "nan", "inf", "31000h", "5 s", "s5"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="it must be a time such as 16s, 20m or 1h30m"):
        read_seconds("ttl", text)


@each("name", ["seed", "eps"])
@each("text", ["1_000", "١٢", "\u00a05", "9" * 5000], ids=ascii)
def test_a_number_that_only_python_reads_is_refused(name, text):
    with pytest.raises(UsageError, match=f"--{name} is "):
        read_arguments([f"--{name}={text}"], FLAGS)


def test_a_number_may_have_the_sign_and_the_blanks_of_strtol():
    assert read_arguments(["--seed= +5", "--eps= 5"], FLAGS) == {"seed": 5, "eps": 5.0}


@pytest.mark.parametrize("text", ["1_000", "١٢", "١٢s"])
def test_a_time_has_the_digits_that_go_reads(text):
    with pytest.raises(UsageError, match="it must be a time"):
        read_seconds("ttl", text)


def test_a_hint_is_never_the_flag_that_was_written():
    """The manual of a command also names flags of other commands."""
    manual = "--model_file FILE; see `paddle train --model_files`"
    assert suggest_flag("unrecognized arguments: --model_files", manual) == "; did you mean --model_file?"
    assert suggest_flag("unrecognized arguments: --predict", "see `paddle train --predict`") == ""


# ----- the flags of gflags and glog themselves -----


def test_a_flag_file_has_a_flag_a_line_and_takes_its_place_among_the_others(tmp_path):
    (tmp_path / "more").write_text("--eps=0.5\n")
    (tmp_path / "flags").write_text(f"# a comment\n\n  --seed=3\n-local\n--flagfile={tmp_path / 'more'}\n")
    given = read_arguments(["--seed=1", f"--flagfile={tmp_path / 'flags'}", "--nolocal"], FLAGS)
    assert given == {"seed": 3, "local": False, "eps": 0.5}


def test_flags_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FLAGS_seed", "7")
    assert read_arguments(["--fromenv=seed", "--tryfromenv", "eps"], FLAGS) == {"seed": 7}
    with pytest.raises(UsageError, match="the environment has no FLAGS_eps; set it, or use --tryfromenv"):
        read_arguments(["--fromenv=seed,eps"], FLAGS)


def test_a_flag_that_undefok_names_may_be_unknown():
    assert read_arguments(["--undefok=old,older", "--old=3", "--older", "--seed=2"], FLAGS) == {"seed": 2}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (None, MissingInputError, "flags cannot be read: No such file or directory; correct its name"),
        ("--seed=1\nlocal", UsageError, "flags line 2: 'local'; write one flag a line, as --name=value"),
        ("--flagfile=flags", UsageError, "more than 100 flag files; one names itself"),
        (f"--flagfile={','.join(['flags'] * 60)}", UsageError, "more than 100 flag files; one names itself"),
    ],
)
def test_a_flag_file_that_cannot_be_used_is_named(tmp_path, monkeypatch, text, error, said):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "flags").write_text(text)
    with pytest.raises(error, match=said):
        read_arguments(["--flagfile=flags"], FLAGS)


def test_every_flag_of_glog_is_accepted_and_one_line_names_each_without_effect(capsys):
    flags = [
        "--logtostderr",
        "--noalsologtostderr",
        "--v=2",
        "--vmodule",
        "a=1",
        "--log_dir=logs",
        "--stderrthreshold=1",
    ]
    assert read_arguments([*flags, "--seed=2"], FLAGS) == {"seed": 2}
    warnings = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert warnings == [
        "--v has no meaning here (there are no lines of VLOG)",
        "--vmodule has no meaning here (there are no lines of VLOG)",
        "--log_dir has no meaning here (the log goes to stderr; write it into a file by 2> FILE)",
    ]


def test_minloglevel_drops_lines_below_it(capsys, monkeypatch):
    monkeypatch.setattr(glog, "_least", 0)
    assert read_arguments(["--minloglevel=1"], FLAGS) == {}
    glog.info("told to nobody")
    glog.warning("a warning")
    glog.fatal("the end")
    assert [line[0] for line in capsys.readouterr().err.splitlines()] == ["W", "F"]
    with pytest.raises(UsageError, match=r"--minloglevel is 4; it must be in \[0, 3\]"):
        read_arguments(["--minloglevel=4"], FLAGS)


def test_a_variable_of_glog_counts_as_its_flag_and_a_flag_overrides_it(capsys, monkeypatch):
    monkeypatch.setattr(glog, "_least", 0)
    monkeypatch.setenv("GLOG_minloglevel", "2")
    monkeypatch.setenv("GLOG_logtostderr", "1")
    monkeypatch.setenv("GLOG_stderrthreshold", "")
    read_arguments([], FLAGS)
    glog.warning("told to nobody")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("GLOG_v", "2")
    monkeypatch.setenv("GLOG_log_dir", "logs")
    read_arguments(["--minloglevel=0", "--v=0"], FLAGS)
    glog.info("told")
    assert [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "GLOG_log_dir has no meaning here (the log goes to stderr; write it into a file by 2> FILE)",
        "told",
    ]
    for text, said in (("4", r"4; it must be in \[0, 3\]"), ("low", "'low'; it must be a whole number")):
        monkeypatch.setenv("GLOG_minloglevel", text)
        with pytest.raises(UsageError, match=f"the variable GLOG_minloglevel is {said}"):
            read_arguments([], FLAGS)
