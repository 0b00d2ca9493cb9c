"""`paddle train` and `paddle status` on a real terminal: a bar and colours there, the lines of v0.10 elsewhere."""

import os
import pty
import re
import subprocess
import sys
import threading

import pytest

TRAIN = ["train", "--config=config.py", "--save_dir=out", "--num_passes=3", "--log_period=3", "--report"]
PADDLE = [sys.executable, "-m", "paddle"]


def run(folder, *arguments, **environ):
    """Run a command on a terminal of its own; return its status and everything that it wrote there."""
    main, side = pty.openpty()
    given = {name: text for name, text in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    said = bytearray()

    def read():
        try:
            while part := os.read(main, 1 << 16):
                said.extend(part)
        except OSError:  # EIO: the last program on the terminal has ended
            pass

    try:
        program = subprocess.Popen(
            [*PADDLE, *arguments],
            cwd=folder,
            stdout=side,
            stderr=side,
            stdin=side,
            env={**given, "TERM": "xterm", **environ},
        )
        os.close(side)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            status = program.wait(100)
        finally:
            program.kill()
            reader.join(20)
    finally:
        os.close(main)
    return status, said.decode()


def words_of(text):
    """The log lines without times, threads and what a terminal makes of them."""
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", text)
    lines = [line.rpartition("\r")[2].lstrip(".") for line in plain.replace("\r\n", "\n").split("\n")]
    return [found[1] for line in lines if (found := re.search(r"^[IWEF]\d{4} \S+ +\d+ (\S+\] .*)$", line))]


def test_a_terminal_has_a_bar_and_the_same_lines_as_a_file(job, paddle):
    status, log = paddle.train(job, *TRAIN[1:])
    assert status == 0 and "\x1b" not in log and "\n.." in f"\n{log}".replace("I", "\n")
    status, shown = run(job, *TRAIN)
    assert status == 0, shown
    assert re.search(r"\[#+-+\] pass [123] of 3, ", shown) and "\n." not in shown
    assert [one for one in words_of(shown) if "Trainer" in one] == [one for one in words_of(log) if "Trainer" in one]
    assert shown.rstrip("\r\n").count("\x1b[K") > 3 and shown.endswith("\r\x1b[K")


def test_an_error_is_red_unless_colour_is_not_wanted(tmp_path):
    for environ, is_red in ({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False):
        status, shown = run(tmp_path, "train", "--config=absent.py", **environ)
        assert status == 66 and ("\x1b[31mF" in shown) == is_red, shown


@pytest.mark.parametrize("environ, is_painted", [({}, True), ({"NO_COLOR": "1"}, False)])
def test_status_has_a_bar_on_a_terminal_only(job, paddle, environ, is_painted):
    assert paddle.train(job, *TRAIN[1:])[0] == 0
    status, shown = run(job, "status", "out", **environ)
    assert status == 0 and shown.endswith("[########################] 100% of the job\r\n")
    assert ("\x1b[32mfinished\x1b[0m" in shown) == is_painted
    piped = subprocess.run([*PADDLE, "status", "out"], cwd=job, capture_output=True, text=True, timeout=100)
    assert "\x1b" not in piped.stdout and "[#" not in piped.stdout
