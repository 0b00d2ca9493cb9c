"""`paddle completion bash`: a real bash offers every command and every flag."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddle.command import COMMANDS, main
from paddle.completion.tables import SOURCES, collect_words
from paddle.utils import status

ASK = """
while IFS= read -r line; do
    read -r -a COMP_WORDS <<<"$line"
    [[ $line != *" " ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _paddle_complete
    echo "${COMPREPLY[*]}"
done
"""
# commands whose words stand in completion/tables.py: those of the others are made from what parses them
BY_HAND = {path: path.split() for path, (module, _) in SOURCES.items() if module == "paddle.completion.tables"}
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    made = tmp_path_factory.mktemp("completion") / "paddle.bash"
    program = (
        "from paddle.command import main; main(['completion', 'bash']); import sys; assert 'numpy' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=True)
    made.write_bytes(ended.stdout)
    return made


@pytest.fixture(scope="module")
def ask(script):
    """What bash offers after each line; where a line ends in a blank, a new word begins."""

    def ask(*lines):
        text = "".join(f"{line}\n" for line in lines)
        command = ["bash", "--norc", "-c", f"source {script}\n{ASK}"]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True)
        assert ended.stderr == ""
        return [line.split() for line in ended.stdout.splitlines()]

    return ask


def test_bash_knows_both_programs(script):
    asked = ["bash", "--norc", "-c", f"source {script}; complete -p paddle start_paddle.py"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.splitlines() == [
        "complete -o default -F _paddle_complete paddle",
        "complete -o default -F _paddle_complete start_paddle.py",
    ]
    assert (
        subprocess.run([Path(sys.executable).with_name("shellcheck"), "--shell=bash", script], timeout=60).returncode
        == 0
    )


def test_every_command_is_offered(ask):
    paddle, launcher, elastic = ask("paddle ", "/root/start_paddle.py ", "paddle elastic ")
    assert paddle == sorted(COMMANDS) and launcher == ["status"] and elastic == ["agent", "run"]


def test_every_flag_of_every_command_is_offered(ask):
    tables = collect_words()
    paths = [path for path in tables if tables[path].flags]
    offered = ask(*(f"{path} -" for path in paths))
    assert {path: flags for path, flags in zip(paths, offered, strict=True)} == {
        path: tables[path].flags for path in paths
    }
    assert len(tables["paddle train"].flags) > 100 and "--nouse_gpu" in tables["paddle train"].flags


@pytest.mark.parametrize("path", BY_HAND)
def test_flags_that_stand_in_a_list_are_those_of_the_help(path, capsys):
    words = BY_HAND[path]
    if words[0] == "start_paddle.py":
        said = subprocess.run([sys.executable, "start_paddle.py", "--help"], capture_output=True, text=True, timeout=60)
        text = next(line for line in said.stdout.splitlines() if "start_paddle.py status" in line)
    elif words[1] == "status":
        text = status.build_parser().format_usage()
    elif words[1] == "version":
        text = ""
    else:
        with contextlib.suppress(SystemExit):
            main([*words[1:], "--help"])
        text = capsys.readouterr().out
    listed = {flag.rstrip("=") for flag in collect_words()[path].flags}
    assert set(FLAG.findall(text)) - {"-h", "--help"} == listed - {"--help"}


@pytest.mark.parametrize(
    "line, offered",
    [
        ("paddle tr", ["train"]),
        ("paddle train --job = tes", ["test"]),  # as bash takes --job=tes apart
        ("paddle train --job=tes", ["--job=test"]),  # as zsh leaves it
        ("paddle train --conf", ["--config=", "--config_args="]),
        ("paddle train --config = no-such-file", []),
        ("paddle train --config=setup.p", ["--config=setup.py"]),
        ("paddle recordio convert --to ", ["recordio", "lines"]),
        ("paddle completion ", ["bash", "zsh"]),
        ("paddle doctor --role au", ["autoscaler"]),
        ("start_paddle.py --dry", ["--dry_run"]),
        ("start_paddle.py status --job", ["--job_path="]),
        ("paddle report ", []),  # names of files, by bash itself
    ],
)
def test_what_follows_a_beginning(line, offered, ask):
    assert ask(line) == [offered]


@pytest.mark.parametrize("argv", [[], ["fish"], ["bash", "zsh"]])
def test_another_shell_is_64(argv, capsys):
    assert main(["completion", *argv]) == 64
    assert capsys.readouterr().err.startswith("paddle completion: ")


def test_zsh_gets_the_same_by_bashcompinit(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out.splitlines()[3]
