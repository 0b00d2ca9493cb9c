"""What a job with a master refuses: real processes, and the table of docs/tasks.md, which says what they say.

Every row of the table is a case here: a message with <...> for what is filled in, and an exit status.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from etcd_process import EtcdProcess, require_etcd
from task_jobs import TaskJob

from paddle_base.recordio.index import RecordRange

PAGE = Path(__file__).parents[3] / "docs" / "tasks.md"


class Refusal(NamedTuple):
    """An item of the list: the programs that end so, what they say, and their status; "-" if they go on."""

    programs: str
    message: str
    status: str


def read_refusals(page: str) -> dict[str, Refusal]:
    """Return the items `- **what** (programs, status): `message`.` by what is refused, in lower case."""
    text = " ".join(page.partition("## What is refused")[2].partition("\n## ")[0].split())
    items = re.findall(r"- \*\*([^*]+)\*\* \(([^()]+), (\d+|-)\): `([^`]+)`\.", text)
    return {what[0].lower() + what[1:]: Refusal(programs, said, status) for what, programs, status, said in items}


REFUSALS = read_refusals(PAGE.read_text(encoding="utf-8"))


class World:
    """The jobs whose programs the cases start; a case says which programs are to end as the table has it.

    A program that is refused changes nothing of a job, so the cases with a job that goes on share it.
    """

    def __init__(self, folder: Path, paddle: Any, make_lines: Callable[..., list[str]]):
        self._folder, self._paddle, self._make_lines = folder, paddle, make_lines
        self._environ = pytest.MonkeyPatch()
        self._closed = contextlib.ExitStack()
        self._closed.callback(self._environ.undo)
        self._going_on: dict[str, TaskJob] = {}
        self.jobs: list[TaskJob] = []

    def job(self, **options: Any) -> TaskJob:
        job = TaskJob(self._folder / f"job-{len(self.jobs)}", self._paddle, self._make_lines, **options)
        self.jobs.append(job)
        return job

    def etcd(self) -> EtcdProcess:
        """One that stands until the world is closed."""
        require_etcd()
        folder = self._folder / f"etcd-{len(self.jobs)}"
        folder.mkdir()
        return self._closed.enter_context(EtcdProcess(folder))

    def secret(self, text: str) -> None:
        """Let programs that start from now on have this secret."""
        self._environ.setenv("PADDLE_SECRET", text)

    def name(self, text: str) -> None:
        """Let programs that start from now on be of a job of this name."""
        self._environ.setenv("PADDLE_JOB_NAME", text)

    def going_on(self, secret: str = "") -> TaskJob:
        """A job that goes on while others are refused."""
        if secret not in self._going_on:
            self.secret(secret)
            job = self._going_on[secret] = self.job()
            job.hold("part-0")
            job.start_all("first")
            job.await_holder("part-0", "first")
        return self._going_on[secret]

    def forget(self) -> None:
        """Let the next case begin with the environment of the tests."""
        self._environ.undo()

    def close(self) -> None:
        self._closed.close()


Case = Callable[[World], tuple[TaskJob, list[str]]]
CASES: dict[str, Case] = {}


def case(what: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[what] = function
        return function

    return keep


def say_no_where(job: TaskJob, *flags: str, programs: tuple[str, ...] = ("master", "pserver", "train")) -> list[str]:
    """Start one of each kind of program with these flags in the place of the store's."""
    job.flags = ("--nics=lo", *flags)
    starts = {"master": job.start_master, "pserver": job.start_server, "train": job.start_trainer}
    for name in programs:
        starts[name](name)
    return list(programs)


# ----- The store


@case("no store")
def no_store(world):
    return (job := world.job()), say_no_where(job, programs=("master",))


@case("two stores")
def two_stores(world):
    flags = ("--store_dir=store", "--etcd_endpoints=http://127.0.0.1:1")
    return (job := world.job()), say_no_where(job, *flags, programs=("train",))


@case("a store that is not a directory")
def no_directory(world):
    job = world.job()
    (job.folder / "store").touch()
    return job, say_no_where(job, "--store_dir=store", programs=("master",))


@case("an endpoint that is not an address")
def no_endpoint(world):
    return (job := world.job()), say_no_where(job, "--etcd_endpoints=ftp://etcd:1")


@case("an etcd that does not answer at the start")
def no_etcd(world):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    return (job := world.job()), say_no_where(job, f"--etcd_endpoints=http://127.0.0.1:{port}")


@case("an etcd that is unreachable for longer than the lease")
def etcd_away(world):
    job, etcd = world.job(master=["--ttl=2s"]), world.etcd()
    job.flags = ("--nics=lo", f"--etcd_endpoints={etcd.endpoint}")
    job.start_master()
    job.await_text("serving on")
    etcd.stop()
    return job, ["master"]


# ----- What a trainer brings


@case("an empty list")
def empty_list(world):
    job = world.job()
    job.write("train.list", [])
    job.start_trainer("one")
    return job, ["one"]


@case("another list than the first trainer's")
def other_list(world):
    job = world.going_on()
    text = (job.folder / "config.py").read_text()
    (job.folder / "other.py").write_text(text.replace("train.list", "other.list"))
    job.write("other.list", job.parts[1:])
    job.start_trainer("other-list", "--config=other.py")
    return job, ["other-list"]


@case("another config than the first trainer's")
def other_config(world):
    job = world.going_on()
    job.start_trainer("other-config", "--config_args=batch=8")
    return job, ["other-config"]


@case("a flag that needs the static job")
def static_flag(world):
    job = world.job()
    job.start_trainer("one", "--start_pass=2")
    return job, ["one"]


@case("a setting that needs the static job")
def static_setting(world):
    job = world.job()
    text = (job.folder / "config.py").read_text()
    (job.folder / "other.py").write_text(f"{text}\nSettings(num_batches_per_send_parameter=2)\n")
    job.start_trainer("one", "--config=other.py")
    return job, ["one"]


@case("another job name")
def other_name(world):
    job = world.going_on()
    job.start_trainer("other-name", "--job_name=digits", "--wait=4s")
    return job, ["other-name"]


# ----- The secret


@case("a secret that is missing")
def no_secret(world):
    job = world.going_on("right")
    world.secret("")
    job.start_trainer("no-secret")
    return job, ["no-secret"]


@case("a wrong secret")
def wrong_secret(world):
    job = world.going_on("right")
    world.secret("wrong")
    job.start_trainer("wrong-secret")
    return job, ["wrong-secret"]


@case("a server with another secret")
def server_of_other_secret(world):
    job = world.job()
    world.secret("wrong")
    job.start_server("server", "--num_pservers=1")
    world.secret("right")
    job.start_master()
    job.start_trainer("one", "--wait=4s")
    return job, ["one"]


# ----- Data


@case("some tasks that always fail")
def some_bad(world):
    job = world.job(master=["--task_timeout_max=1"], passes=1)
    job.write("part-3", ["1 2 tree 0"])
    job.start_all("one", "two")
    return job, ["master", "one", "two"]


@case("all tasks of a pass fail")
def all_bad(world):
    job = world.job(tasks=2, master=["--task_timeout_max=0"])
    for part in job.parts:
        job.write(part, ["1 2 tree 0"])
    job.start_all("one")
    return job, ["master"]


@case("all tasks of a pass fail, as its trainers report it")
def all_bad_at_a_trainer(world):
    job, _ = all_bad(world)
    return job, ["one"]


@case("a RecordIO file that is not there")
def lost_records(world):
    job = world.job(tasks=2, passes=1, master=["--task_timeout_max=0"]).to_records()
    (job.folder / "records-1").unlink()
    job.start_all("one")
    job.await_text("the RecordIO file records-1 cannot be read: No such file or directory", "one")
    return job, ["master", "one"]


@case("a damaged chunk of a RecordIO file")
def damaged_chunk(world):
    job = world.job(tasks=2, passes=1, master=["--task_timeout_max=0"]).to_records()
    chunk = RecordRange.parse(job.parts[2])
    with (job.folder / chunk.path).open("r+b") as file:
        file.seek(chunk.offset + 60)
        file.write(b"x")
    job.start_all("one")
    job.await_text(f"records-1: chunk 0 at byte {chunk.offset}: ", "one")
    return job, ["master", "one"]


@case("a damaged header in a RecordIO file")
def damaged_header(world):
    job = world.job(tasks=2, passes=1, master=["--task_timeout_max=0"]).to_records()
    chunk = RecordRange.parse(job.parts[3])
    with (job.folder / chunk.path).open("r+b") as file:
        file.seek(chunk.offset)
        file.write(b"xxxx")
    job.start_all("one")
    job.await_text(f"records-1: chunk 1 at byte {chunk.offset}: ", "one")
    return job, ["master", "one"]


# ----- The table


@pytest.fixture(scope="module")
def world_of_module(tmp_path_factory, paddle_of_module, tools):
    with contextlib.closing(World(tmp_path_factory.mktemp("world"), paddle_of_module, tools.make_lines)) as world:
        yield world


@pytest.fixture
def world(world_of_module):
    yield world_of_module
    world_of_module.forget()


def make_pattern(message):
    """Return a pattern of a message that has <...> for what is filled in."""
    return ".+".join(map(re.escape, message.split("<...>")))


@pytest.mark.parametrize("what", CASES)
def test_what_is_refused_is_told_once_with_the_status_of_the_page(world, what):
    job, names = CASES[what](world)
    refusal = REFUSALS[what]
    for name in names:
        (status,) = job.wait(name)
        lines = [line.partition("] ")[2] for line in job.log(name).splitlines() if line.startswith("F")]
        assert len(lines) == 1 and re.fullmatch(make_pattern(refusal.message), lines[0]), job.log(name)
        assert str(status) == refusal.status, job.log(name)


def test_the_page_has_a_row_for_each_case_and_no_other():
    assert list(REFUSALS) == list(CASES)


# ----- What is no refusal


def test_two_jobs_on_one_etcd_know_nothing_of_each_other(world):
    endpoint = world.etcd().endpoint
    jobs = {name: world.job(tasks=tasks, passes=1) for name, tasks in (("digits", 3), ("words", 2))}
    for name, job in jobs.items():
        world.name(name)
        job.flags = ("--nics=lo", f"--etcd_endpoints={endpoint}")
        job.start_all("one")
    for name, job in jobs.items():
        assert job.wait() == [0, 0, 0, 0], job.log("one")
        assert job.accounts() == [job.whole_pass()] and f"trainer 0 of job '{name}'" in job.log("one")
