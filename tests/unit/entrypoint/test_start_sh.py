"""start.sh with a stand-in for the launcher that records what it was started with."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from docpages.options import start_sh_rows
from each import each
from script_pod import START_SH, Pod

from paddle_base.runtime.kubernetes.account import ACCOUNT
from paddle_cluster.launcher.roles.plan import FLAGS
from paddle_cluster.launcher.settings import VARIABLES

REQUIRED = ("JOB_PATH", "JOB_NAME")
DEFAULTS = {None: "required", "": "none"}  # in the help
PORTS = ("CONF_PADDLE_NIC", "CONF_PADDLE_PORT", "CONF_PADDLE_PORTS_NUM", "CONF_PADDLE_PORTS_NUM_SPARSE")
BLOG = dict.fromkeys(["TRAIN_CONFIG_DIR", "CONF_PADDLE_GRADIENT_NUM", *PORTS])  # what its YAML leaves out


def test_the_launcher_gets_the_tutorials_flags_in_its_order(pod: Pod) -> None:
    assert pod.record()["argv"] == [
        "--dot_period=10",
        "--log_period=50",
        "--num_passes=10",
        "--trainer_count=1",
        "--saving_period=1",
        "--local=0",
        "--config=trainer_config.py",
        "--use_gpu=0",
    ]


def test_every_flag_is_overridden_by_its_variable(pod: Pod) -> None:
    """The original fixed them all in the script (S27)."""
    flags = ["dot_period", "log_period", "num_passes", "trainer_count", "saving_period", "local", "use_gpu"]
    argv = pod.record(**{flag.upper(): str(number) for number, flag in enumerate(flags, 70)})["argv"]
    assert [flag for number, flag in enumerate(flags, 70) if f"--{flag}={number}" not in argv] == []


@pytest.mark.parametrize("passed", [["--num_passes=3"], ["--num_passes", "3"], ["-num_passes=3"]], ids=" ".join)
def test_a_flag_passed_as_argument_is_given_once_and_last(pod: Pod, passed: list[str]) -> None:
    argv = pod.record(*passed, NUM_PASSES="5")["argv"]
    assert [word for word in argv if "num_passes" in word] == passed[:1]
    assert argv[-len(passed) :] == passed


def test_values_with_blanks_and_shell_signs_arrive_as_they_are(pod: Pod) -> None:
    """The original joined strings for a shell (S22)."""
    value = "--comment=a b $(touch hacked); * \"c\" 'd'"
    assert pod.record(value)["argv"][-1] == value
    assert not list(pod.root.rglob("hacked"))


def test_all_missing_variables_are_reported_at_once(pod: Pod) -> None:
    done = pod.start(**dict.fromkeys(REQUIRED))
    assert done.returncode == 78
    assert [name for name in REQUIRED if f"start.sh: {name} is not set" in done.stderr] == list(REQUIRED)
    assert done.stdout == ""


@pytest.mark.parametrize("name", REQUIRED)
def test_an_empty_variable_is_a_missing_one(pod: Pod, name: str) -> None:
    done = pod.start(**{name: ""})
    assert done.returncode == 78
    assert f"{name} is not set" in done.stderr


def test_the_three_variables_of_the_blog_are_enough(pod: Pod) -> None:
    """It printed JOB_NAME, JOB_PATH and JOB_NAMESPACE; the tutorial printed the values of all others."""
    done = pod.start(**BLOG, JOB_NAMESPACE="default")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.split("RECORD ")[1])
    assert record["env"]["TRAIN_CONFIG_DIR"] == "digits" and "--config=trainer_config.py" in record["argv"]
    assert [name for name in record["env"] if name.startswith("CONF_PADDLE_")] == []  # the launcher has the defaults
    assert "not set in the pod's env, so by default: TRAIN_CONFIG_DIR=digits\n" in done.stdout


def test_nothing_is_said_of_defaults_where_all_is_set(pod: Pod) -> None:
    assert "by default" not in pod.start().stdout


def test_help_says_the_defaults_of_the_launcher() -> None:
    rows = {name: default for name, (default, _) in start_sh_rows().items()}
    own = {"JOB_PATH": "required", "TRAIN_CONFIG_DIR": "found", "JOB_NAMESPACE": "the pod's own"}
    own |= {one.name: one.default or DEFAULTS[one.default] for one in VARIABLES if one.name not in own}
    expected = {one.name: own[one.name] for one in VARIABLES if one.name in rows}
    assert {name: rows[name] for name in expected} == expected
    assert {*PORTS, "SERVICE_ACCOUNT_DIR", "CONF_PADDLE_METRICS_PORT"} <= expected.keys()


def test_help_says_the_defaults_of_the_flags(pod: Pod) -> None:
    rows = [(meaning.split(":")[0], default) for default, meaning in start_sh_rows().values() if meaning[:2] == "--"]
    ports = ["--ports_num", "--ports_num_for_sparse"]  # flags of the launcher's programs, not of its command line
    assert {f"{flag}={default}" for flag, default in rows if flag not in ports} == {*pod.record()["argv"]}


def test_help_says_the_defaults_of_the_roles() -> None:
    """The number of passes stood in two files: a master could train another number than a static job."""
    rows, flags = start_sh_rows(), [flag for each in FLAGS.values() for flag in each if flag.default]
    expected = {flag: f"JOB_PATH/JOB_NAME{flag.default}" if flag.default[0] == "/" else flag.default for flag in flags}
    assert {flag: rows[flag.variables[0]][0] for flag in flags} == expected


def test_the_directory_of_the_service_account_is_that_of_the_launcher() -> None:
    assert f"${{SERVICE_ACCOUNT_DIR:-{ACCOUNT}}}" in START_SH.read_text()


def test_shards_and_output_are_no_config_directories(pod: Pod) -> None:
    for name in ("0/data", "1", "output/run-1", "mine", ".hidden"):
        (pod.volume / "job" / name).mkdir(parents=True)
    for name in ("0", "1", "output", ".hidden"):
        (pod.volume / "job" / name / "trainer_config.py").write_text("")
    (pod.volume / "job/trainer_config.py").write_text("")
    (pod.volume / "job/mine/helpers.py").write_text("")
    assert pod.record(TRAIN_CONFIG_DIR=None)["env"]["TRAIN_CONFIG_DIR"] == "digits"


def test_of_several_config_directories_none_is_taken_and_all_are_listed(pod: Pod) -> None:
    other = pod.volume / "job/quick start"
    other.mkdir()
    (other / "trainer_config.lr.py").write_text("")
    done = pod.start(TRAIN_CONFIG_DIR=None)
    assert done.returncode == 78
    assert f"several directories of {pod.volume}/job have a config: digits quick start\n" in done.stderr
    assert "set TRAIN_CONFIG_DIR to one of them" in done.stderr


@pytest.mark.parametrize(
    ("argument", "config"), [((), "mine.py"), (("--config=mine.py",), None)], ids=["TRAIN_CONFIG", "--config"]
)
def test_the_config_directory_is_that_with_the_wanted_config(
    pod: Pod, argument: tuple[str, ...], config: str | None
) -> None:
    (pod.config / "trainer_config.py").unlink()
    (pod.volume / "job/mine").mkdir()
    (pod.volume / "job/mine/mine.py").write_text("")
    record = pod.record(*argument, TRAIN_CONFIG_DIR=None, TRAIN_CONFIG=config)
    assert record["env"]["TRAIN_CONFIG_DIR"] == "mine"


def test_no_config_directory_at_all_is_missing_input(pod: Pod) -> None:
    (pod.config / "trainer_config.py").unlink()
    done = pod.start(TRAIN_CONFIG_DIR=None)
    assert done.returncode == 66
    assert (
        f"no config directory in {pod.volume}/job: none has a file trainer_config.py trainer_config.lr.py"
        in done.stderr
    )
    assert "run the data job first" in done.stderr


def test_a_job_directory_that_is_missing_has_no_config_directory(pod: Pod) -> None:
    assert pod.start(TRAIN_CONFIG_DIR=None, JOB_NAME="other").returncode == 66


@pytest.mark.parametrize("name", ["..", ".", "a/b", "-rf", "Job", "a b", "*"])
def test_a_job_name_that_is_no_name_deletes_nothing(pod: Pod, name: str) -> None:
    (pod.root / "precious").write_text("")
    done = pod.start(JOB_NAME=name)
    assert done.returncode == 78
    assert f"JOB_NAME is '{name}'" in done.stderr
    assert (pod.root / "precious").exists()


@pytest.mark.parametrize("name", ["JOB_PATH", "WORK_DIR"])
def test_a_relative_path_is_refused(pod: Pod, name: str) -> None:
    done = pod.start(**{name: "some/where"})
    assert done.returncode == 78
    assert f"{name} is 'some/where'" in done.stderr


def test_the_namespace_defaults_to_the_service_accounts(pod: Pod) -> None:
    assert pod.record()["env"]["JOB_NAMESPACE"] == "science"
    assert pod.record(JOB_NAMESPACE="art")["env"]["JOB_NAMESPACE"] == "art"


def test_without_a_service_account_the_namespace_is_a_missing_variable(pod: Pod) -> None:
    done = pod.start(SERVICE_ACCOUNT_DIR=str(pod.root / "nowhere"))
    assert done.returncode == 78
    assert "JOB_NAMESPACE is not set" in done.stderr


def test_the_job_runs_in_a_copy_of_the_config_directory(pod: Pod) -> None:
    (pod.config / "data").mkdir()
    (pod.config / "data/kept.txt").write_text("x")
    (pod.config / ".hidden").write_text("x")
    (pod.config / "linked.py").symlink_to("trainer_config.py")
    record = pod.record()
    staged = pod.work / "job"
    assert record["cwd"] == str(staged)
    found = sorted(str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file())
    assert found == [".hidden", "data/kept.txt", "linked.py", "trainer_config.py"]
    assert not (staged / "linked.py").is_symlink()


def test_python_starts_for_the_launcher_alone_if_the_config_directory_has_only_files(pod: Pod) -> None:
    """Each start of Python takes 25 ms, and three pods of a machine take them one after the other."""
    shim = pod.root / "shim"
    shim.mkdir()
    (shim / "python3").write_text(f'#!/bin/sh\necho "PYTHON $@"\nexec {sys.executable} "$@"\n')
    (shim / "python3").chmod(0o755)
    (pod.config / "more/deep").mkdir(parents=True)
    (pod.config / "more/deep/words.txt").write_text("a")
    environ = {"PATH": f"{shim}:{pod.env['PATH']}"}
    plain = pod.start(**environ).stdout
    assert plain.count("PYTHON ") == 1 and f"staged 2 files of {pod.config}" in plain
    (pod.config / "more/link").symlink_to("..")
    odd = pod.start(**environ)
    assert odd.returncode == 65 and "shards.tree" in odd.stdout and "a link that forms a loop" in odd.stderr


def test_what_an_earlier_container_left_is_replaced_and_not_mixed_in(pod: Pod) -> None:
    """The original copied over whatever was there (S20)."""
    pod.record()
    (pod.work / "job/stale.py").write_text("")
    (pod.work / ".new~job.AbCdEf").mkdir()
    (pod.work / ".new~job.AbCdEf/half").write_text("")
    (pod.work / ".new~job.b.AbCdEf").mkdir()
    pod.record()
    assert [path.name for path in (pod.work / "job").iterdir()] == ["trainer_config.py"]
    # the last one is another job's
    assert sorted(path.name for path in pod.work.iterdir()) == [".new~job.b.AbCdEf", "job"]


def test_a_missing_config_directory_is_named_with_status_66(pod: Pod) -> None:
    """The original trained on whatever lay in /root."""
    done = pod.start(TRAIN_CONFIG_DIR="nowhere")
    assert done.returncode == 66
    assert f"no config directory {pod.volume}/job/nowhere" in done.stderr
    assert "RECORD" not in done.stdout


@pytest.mark.parametrize("wrong", ["digit", "DIGITS", "diigts"])
def test_a_misspelt_config_directory_is_told_the_likely_spelling(pod: Pod, wrong: str) -> None:
    """The message named only the path that is not there, and a newcomer had to list the volume."""
    for name in ("0", "12", "output", "mnist"):
        (pod.volume / "job" / name).mkdir()
    done = pod.start(TRAIN_CONFIG_DIR=wrong)
    assert done.returncode == 66
    assert f"start.sh: {pod.volume}/job has digits mnist; did you mean TRAIN_CONFIG_DIR=digits?\n" in done.stderr


def test_a_missing_config_directory_names_those_that_are_there_without_a_guess(pod: Pod) -> None:
    for number in range(12):
        (pod.volume / f"job/job-{number:02}").mkdir()
    (pod.volume / "job/odd\nname").mkdir()
    done = pod.start(TRAIN_CONFIG_DIR="zebra")
    names = "digits " + " ".join(f"job-{number:02}" for number in range(9))
    assert f"start.sh: {pod.volume}/job has {names} and 4 more directories\n" in done.stderr


def test_a_job_directory_without_a_config_directory_says_so(pod: Pod) -> None:
    shutil.rmtree(pod.config)
    (pod.volume / "job/0").mkdir()
    assert f"start.sh: {pod.volume}/job has no such directory at all\n" in pod.start().stderr


def test_a_missing_directory_of_the_job_names_the_jobs_that_are_there(pod: Pod) -> None:
    done = pod.start(JOB_NAME="jop")
    assert done.returncode == 66
    assert f"start.sh: there is no {pod.volume}/jop; {pod.volume} has job; did you mean JOB_NAME=job?\n" in done.stderr


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("Stale file handle", "nowhere"),
        ("Input/output error", None),
        ("Transport endpoint is not connected", "nowhere"),
    ],
)
def test_a_config_directory_on_a_sick_volume_is_not_a_missing_one(pod: Pod, answer: str, chosen: str | None) -> None:
    """66 would end the Job for good."""
    stat = pod.root / "bin/stat"
    stat.write_text(f"#!/bin/sh\necho \"stat: cannot statx '$2': {answer}\" >&2\nexit 1\n")
    stat.chmod(0o755)
    done = pod.start(TRAIN_CONFIG_DIR=chosen, PATH=f"{pod.root}/bin:{pod.env['PATH']}")
    assert done.returncode == 74
    where = f"{pod.volume}/job/nowhere" if chosen else f"{pod.volume}/job"
    assert f"cannot look at {where} (" in done.stderr and answer in done.stderr


@pytest.mark.parametrize("closed", ["volume", "volume/job", "volume/job/digits"])
def test_a_directory_that_the_uid_may_not_read_is_named_with_its_owner(pod: Pod, closed: str) -> None:
    """Root may read everything, so the check is asked with another answer."""
    code = f'[() {{ case "$1 $2" in "-r {pod.root}/{closed}") return 1 ;; esac; builtin [ "$@"; }}; stage_config'
    done = call(pod)(code)
    assert done.returncode == 66
    assert f"may not read {pod.root}/{closed} (owner {os.getuid()}:{os.getgid()}, mode" in done.stderr
    assert "chown" in done.stderr


@pytest.mark.parametrize("existing", ["trainer_config.py", "trainer_config.lr.py"])
def test_the_config_is_the_one_of_the_two_names_that_exists(pod: Pod, existing: str) -> None:
    (pod.config / "trainer_config.py").rename(pod.config / existing)
    assert f"--config={existing}" in pod.record()["argv"]


def test_of_both_names_the_plain_one_wins(pod: Pod) -> None:
    (pod.config / "trainer_config.lr.py").write_text("")
    assert "--config=trainer_config.py" in pod.record()["argv"]


@pytest.mark.parametrize("config", ["mine.py", None])
def test_a_missing_config_is_named_with_status_66_and_what_there_is(pod: Pod, config: str | None) -> None:
    (pod.config / "trainer_config.py").rename(pod.config / "other.py")
    done = pod.start(TRAIN_CONFIG=config)
    assert done.returncode == 66
    assert f"no config {config or 'trainer_config.py'} in" in done.stderr
    assert "other.py" in done.stderr


def test_a_config_passed_as_argument_is_left_to_the_launcher(pod: Pod) -> None:
    (pod.config / "trainer_config.py").unlink()
    argv = pod.record("--config=mine.py")["argv"]
    assert [word for word in argv if word.startswith("--config")] == ["--config=mine.py"]


def test_a_work_directory_that_cannot_be_made_ends_with_status_74(pod: Pod) -> None:
    (pod.root / "file").write_text("")
    done = pod.start(WORK_DIR=str(pod.root / "file/work"))
    assert done.returncode == 74
    assert f"WORK_DIR={pod.root}/file/work" in done.stderr


@pytest.mark.parametrize("home", [None, "absent", "bin/start.sh"], ids=["no HOME", "none there", "a file"])
def test_home_and_tmpdir_are_writable_for_a_uid_that_has_none(pod: Pod, home: str | None) -> None:
    env = pod.record(HOME=home and str(pod.root / home), TMPDIR=str(pod.root / "absent"))["env"]
    assert env["TMPDIR"] == str(pod.work)
    assert env["HOME"] == str(pod.work)


def test_a_home_that_can_be_written_stays(pod: Pod) -> None:
    assert pod.record()["env"]["HOME"] == str(pod.root)


def test_the_launcher_replaces_the_shell_so_that_signals_reach_it(pod: Pod) -> None:
    """The original's shell stayed process 1 and forwarded no SIGTERM (S16)."""
    command = [str(pod.root / "bin/start.sh")]
    with subprocess.Popen(command, env=pod.env, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        assert process.stdout is not None
        record = json.loads(process.stdout.read().split("RECORD ")[1])
        assert process.wait(timeout=30) == 0
    assert record["pid"] == process.pid


def test_the_launchers_status_is_the_scripts(pod: Pod) -> None:
    """The original lost it in a pipe (S12)."""
    (pod.root / "bin/start_paddle.py").write_text("raise SystemExit(75)")
    assert pod.start().returncode == 75


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_variable_and_touches_nothing(pod: Pod, flag: str) -> None:
    done = pod.start(flag, **dict.fromkeys(REQUIRED))
    assert done.returncode == 0
    assert all(name in done.stdout for name in (*REQUIRED, *BLOG, "TRAIN_CONFIG", "NUM_PASSES", "WORK_DIR"))
    assert not list(pod.work.iterdir())


def test_a_first_word_that_is_no_flag_is_run_instead(pod: Pod) -> None:
    done = pod.start("printf", "%s|", "a b", "c", **dict.fromkeys(REQUIRED))
    assert (done.returncode, done.stdout) == (0, "a b|c|")


def test_no_secret_is_printed(pod: Pod) -> None:
    done = pod.start(PADDLE_SECRET="hunter2")
    assert "hunter2" not in done.stdout + done.stderr


def test_sourced_it_only_defines_functions(pod: Pod) -> None:
    script = f". {START_SH}; has_flag config --config=x && ! has_flag config --configs=x && declare -F stage_config"
    bare = {"PATH": pod.env["PATH"]}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, env=bare)
    assert (done.returncode, done.stdout) == (0, "stage_config\n"), done.stderr


def call(pod: Pod) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Returns a runner of bash code with start.sh's functions."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f". {START_SH}\n{code}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, env=pod.env, cwd=pod.root)

    return run


def test_a_copy_that_fails_begins_again_in_an_empty_directory(pod: Pod) -> None:
    """A file server may answer ESTALE once after a directory was replaced."""
    stale_once = """
        cp() { if [ -e seen ]; then command cp "$@"; else touch seen "$PWD/target/half"; return 1; fi; }
        mkdir target; copy_tree volume/job/digits target; ls target
    """
    done = call(pod)(stale_once)
    assert done.returncode == 0
    assert done.stdout == "trainer_config.py\n"
    assert "attempt 1 of 3" in done.stderr


def test_a_copy_that_fails_for_good_ends_with_status_74_and_no_work_directory(pod: Pod) -> None:
    done = call(pod)("cp() { return 1; }; stage_config")
    assert done.returncode == 74
    assert f"cannot copy {pod.config}" in done.stderr
    assert not (pod.work / "job").exists()


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a loop": (lambda config: (config / "loop").symlink_to("."), "a link that forms a loop"),
    "a loop below": (
        lambda config: [(config / "d").mkdir(), (config / "d/up").symlink_to("..")],
        "a link that forms a loop",
    ),
    "a link to itself": (lambda config: (config / "a").symlink_to("a"), "a link that forms a loop"),
    "a link to nothing": (lambda config: (config / "a").symlink_to("b"), "a link to a path that does not exist"),
    "a link below a file": (
        lambda config: (config / "a").symlink_to("trainer_config.py/b"),
        "a link to a path that does not exist",
    ),
    "a FIFO": (lambda config: os.mkfifo(config / "pipe"), "a FIFO"),
    "a device": (lambda config: (config / "zero").symlink_to("/dev/zero"), "a device"),
}


@pytest.mark.parametrize(("make", "what"), ODD.values(), ids=ODD)
def test_a_config_directory_that_cannot_be_copied_ends_the_job(
    pod: Pod, make: Callable[[Path], object], what: str
) -> None:
    """`loop -> .` was tried three times and counted as a sick volume, which is worth a retry; a FIFO was copied."""
    make(pod.config)
    done = pod.start()
    assert (done.returncode, f"the config directory {pod.config} has {what}" in done.stderr) == (65, True), done.stderr
    assert list(pod.work.iterdir()) == []


def test_links_of_a_config_directory_are_copied_as_what_they_lead_to(pod: Pod) -> None:
    (pod.config / "common").mkdir()
    (pod.config / "common/shared.py").write_text("shared")
    (pod.config / "again").symlink_to("common")
    (pod.config / "provider.py").symlink_to("../digits/common/shared.py")
    work = Path(pod.record()["cwd"])
    assert [(work / name).read_text() for name in ("provider.py", "again/shared.py")] == ["shared", "shared"]
    assert not (work / "provider.py").is_symlink()


@pytest.mark.parametrize("linked", [False, True], ids=["the same path", "by a symbolic link"])
def test_a_work_directory_on_the_volume_never_costs_the_job_its_data(pod: Pod, tmp_path: Path, linked: bool) -> None:
    """What is staged replaces WORK_DIR/JOB_NAME: that must never be the job itself."""
    work = tmp_path / "link" if linked else pod.volume
    if linked:
        work.symlink_to(pod.volume)
    done = pod.start(WORK_DIR=str(work))
    assert done.returncode == 78
    assert "the work directory would be the job's own" in done.stderr
    assert (pod.config / "trainer_config.py").exists()


@pytest.mark.parametrize("name", [".", "..", "a/../b", "./", "//"])
def test_the_config_directory_is_one_inside_the_jobs(pod: Pod, name: str) -> None:
    done = pod.start(TRAIN_CONFIG_DIR=name)
    assert done.returncode == 78
    assert f"TRAIN_CONFIG_DIR is '{name}'" in done.stderr


def test_a_config_directory_may_end_in_a_slash(pod: Pod) -> None:
    assert pod.start(TRAIN_CONFIG_DIR="digits/").returncode == 0


# ----- A program of ENTRY

ENTRY = {"ENTRY": "python train.py"}


def test_a_program_needs_no_config_and_gets_no_flag_of_one(pod: Pod) -> None:
    program = pod.volume / "job/program"
    program.mkdir()
    (program / "train.py").write_text("print(1)\n")
    found = pod.record("--seed=7", **ENTRY, TRAIN_CONFIG_DIR="program", PADDLE_INIT_TRAINER_COUNT="4")
    assert found["argv"] == [
        *("--dot_period=10", "--log_period=50", "--num_passes=10", "--trainer_count=4", "--saving_period=1"),
        *("--local=0", "--use_gpu=0", "--seed=7"),
    ]
    assert found["cwd"] == found["env"]["TRAINER_PACKAGE"] == str(pod.work / "job")
    assert (pod.work / "job/train.py").exists()


def test_the_directory_of_the_program_is_the_only_one_with_a_program(pod: Pod) -> None:
    """A directory of programs has no trainer_config.py."""
    (pod.config / "trainer_config.py").rename(pod.config / "train.py")
    assert pod.record(**ENTRY, TRAIN_CONFIG_DIR=None)["env"]["TRAIN_CONFIG_DIR"] == "digits"
    assert pod.start(TRAIN_CONFIG_DIR=None).returncode == 66


def test_the_package_of_2017_may_be_anywhere(pod: Pod) -> None:
    """The shard is copied to ./data of each pod, so the program runs in a copy, too."""
    package = pod.root / "app/mine"
    package.mkdir(parents=True)
    (package / "train.py").write_text("print(1)\n")
    found = pod.record(**ENTRY, TRAINER_PACKAGE=str(package), TRAIN_CONFIG_DIR=None)
    assert found["cwd"] == found["env"]["TRAINER_PACKAGE"] == str(pod.work / "job")
    assert found["env"]["TRAIN_CONFIG_DIR"] == "mine" and (pod.work / "job/train.py").exists()


@each("path, status", [("app", 78), ("/nonexistent/app", 66)])
def test_a_package_that_cannot_be_used_is_named(pod: Pod, path: str, status: int) -> None:
    done = pod.start(**ENTRY, TRAINER_PACKAGE=path)
    assert done.returncode == status and f"TRAINER_PACKAGE is '{path}'" in done.stderr
