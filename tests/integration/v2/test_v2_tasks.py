"""Programs with `cloud_reader`: a master, two parameter servers of its store, and programs that come and go."""

from __future__ import annotations

import json
import pickle
import signal
import tarfile

import numpy as np
import pytest
from waiting import DEADLINE_S, until

from paddle_base.recordio.writing import RecordIOWriter
from trainer.records.records import read_records

TASKS, SAMPLES = 8, 11  # of the job; a batch has 4 samples
WHOLE = (TASKS, 0, TASKS * SAMPLES, 0, 0)  # the account of a pass in which nothing was lost
TRAIN = """
import signal
paddle.init()
name = sys.argv[1]
parameters, trainer = network(is_local=False, pserver_spec="store")
def handler(event):
    if isinstance(event, paddle.event.EndIteration) and event.batch_id == 2 and os.environ.get("HOLDS"):
        print("holds", flush=True)
        signal.pause()
    if isinstance(event, paddle.event.EndPass):
        print("end of pass", event.pass_id, flush=True)
        save(parameters, f"{name}-{event.pass_id}.tar")
cloud = paddle.reader.creator.cloud_reader("data/part-*", "store")
def mapper(sample):
    if sample[0][0] == 99:
        raise ValueError("an odd sample")
    return sample
READER
trainer.train(reader, num_passes=9, event_handler=handler)
"""
PLAIN = "reader = paddle.batch(paddle.reader.map_readers(mapper, cloud), 4)"
THREADS = """
reader = paddle.reader.xmap_readers(mapper, paddle.reader.buffered(cloud, 3), 2, 5)
reader = paddle.batch(paddle.reader.buffered(paddle.reader.shuffle(reader, 7), 5), 4)
"""


class Job:
    """The programs of a job. Every file of its data is a task."""

    def __init__(self, programs, *, passes=2, odd=None, servers=2, store="--store_dir=store"):
        self.programs, self.passes = programs, passes
        folder = programs.folder
        (folder / "data").mkdir()
        rows = np.random.default_rng(3).normal(size=(TASKS, SAMPLES, 3)).round(3)
        if odd is not None:
            rows[odd][5, 0] = 99
        for number, part in enumerate(rows.tolist()):
            with RecordIOWriter(folder / f"data/part-{number}") as file:
                for a, b, c in part:
                    file.write(pickle.dumps(([a, b, c], int(a + b > c)), 0))
        flags = (store, "--nics=lo")
        limits = ("--member_ttl=2s", "--linger=3s", "--task_timeout_max=1")
        self.master = programs.start(
            "master", "master", "--port=0", f"--num_passes={passes}", "--output=out", *limits, *flags
        )
        self.servers = [
            programs.start(f"server{number}", "pserver", f"--num_pservers={servers}", "--etcd_ttl=2s", *flags)
            for number in range(servers)
        ]

    def start(self, name, program="train.py", **environ):
        return self.programs.start(name, "run", program, name, PADDLE_INIT_NICS="lo", **environ)

    def account(self):
        """(tasks done, discarded, samples, repeated samples, unreported dispatches) of each pass, in tasks.json."""
        fields = ("done", "discarded", "samples", "repeated", "unreported")
        return [tuple(one[name] for name in fields) for one in self.record()["passes"]]

    def record(self):
        return json.loads((self.programs.folder / "out/tasks.json").read_text())

    def end(self, *started):
        """Wait for the end of the job; return the exit statuses of these programs."""
        statuses = [one.wait(DEADLINE_S) for one in started]
        assert [one.wait(DEADLINE_S) for one in (self.master, *self.servers)] == [0] * (1 + len(self.servers))
        return statuses


def values_of(path):
    with tarfile.open(path) as archive:
        return {one: archive.extractfile(one).read() for one in archive.getnames() if not one.endswith(".protobuf")}


@pytest.mark.parametrize("reader", [PLAIN, THREADS])
def test_the_samples_of_all_tasks_are_trained_once_in_each_pass(programs, reader):
    programs.write("train.py", TRAIN.replace("READER", reader))
    job = Job(programs)
    pod = {"PADDLE_OUTPUT": str(programs.folder / "out"), "PADDLE_ATTEMPT": ""}
    assert job.end(*[job.start(name, **pod) for name in ("one", "two")]) == [0, 0], programs.log("one")
    assert job.account() == [WHOLE] * 2
    assert values_of(programs.folder / "one-1.tar") == values_of(programs.folder / "two-1.tar")
    assert "end of pass 1" in programs.log("two")
    nodes = sorted((programs.folder / "out").glob("node_*"))
    told = [json.loads((node / "progress.json").read_text()) for node in nodes]  # as trainers with a master do
    assert [(one["status"], one["pass"]) for one in told] == [("finished", 1)] * 2
    samples = [one["samples"] for node in nodes for one in read_records(node) if one["kind"] == "pass"]
    assert sum(samples) == 2 * TASKS * SAMPLES


def test_asynchronous_programs_find_master_and_servers_in_etcd(programs, etcd):
    text = TRAIN.replace("READER", PLAIN).replace('"store"', repr(etcd.endpoint.removeprefix("http://")))
    async_momentum = "paddle.optimizer.Momentum(momentum=0, learning_rate=0.05, is_async=True), is_local"
    programs.write("train.py", text.replace("is_local", async_momentum))
    job = Job(programs, store=f"--etcd_endpoints={etcd.endpoint}")
    assert job.end(*[job.start(name) for name in ("one", "two")]) == [0, 0], programs.log("one")
    assert job.account() == [WHOLE] * 2


def test_programs_join_and_a_late_one_learns_that_the_job_is_over(programs):
    """The first program trains a pass alone, and waits in its handler until the others have trained the last one."""
    waits = 'signal.sigwait({signal.SIGUSR1}) if os.environ.get("WAITS") and not event.pass_id else None'
    blocks = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
    text = TRAIN.replace('print("end of pass"', f'{waits}\n        print("end of pass"')
    programs.write("train.py", blocks + text.replace("READER", PLAIN))
    job = Job(programs, passes=2)
    first = job.start("first", WAITS="1")
    until(lambda: "pass 0" in programs.log("first"), "the first task")
    others = [job.start(name) for name in ("one", "two")]
    for name in ("one", "two"):
        until(lambda name=name: "joining job" in programs.log(name), "the other programs")
    until(lambda: "end of pass 1" in programs.log("one") + programs.log("two"), "the end of the last pass")
    first.send_signal(signal.SIGUSR1)
    assert job.end(first, *others) == [0] * 3, programs.log("one")
    assert job.account() == [WHOLE] * 2
    assert programs.log("first").count("end of pass") == 2


def test_a_lost_program_costs_its_task(programs):
    programs.write("train.py", TRAIN.replace("READER", PLAIN))
    job = Job(programs)
    lost = job.start("lost", HOLDS="1")
    until(lambda: "holds" in programs.log("lost"), "the first batches of the program")
    others = [job.start(name) for name in ("one", "two")]
    lost.send_signal(signal.SIGKILL)
    assert lost.wait(DEADLINE_S) == -signal.SIGKILL
    assert job.end(*others) == [0, 0], programs.log("one")
    assert job.account() == [(*WHOLE[:-1], 1), WHOLE]


def test_a_pass_whose_program_fails_in_its_handler_is_saved_by_the_next_program(programs):
    programs.write(
        "train.py", TRAIN.replace("READER", PLAIN).replace("save(", "1 / int(os.environ['ONE'])\n        save(")
    )
    job = Job(programs, passes=1)
    assert job.start("one", ONE="0").wait(DEADLINE_S) == 1, programs.log("one")
    assert job.end(job.start("two", ONE="1")) == [0], programs.log("two")
    assert values_of(programs.folder / "two-0.tar")
    assert job.account() == [WHOLE]


def test_sigterm_gives_the_task_back_after_the_batch(programs):
    programs.write("train.py", TRAIN.replace("READER", PLAIN).replace("signal.pause()", "os.kill(os.getpid(), 15)"))
    job = Job(programs, passes=1)
    assert job.start("ended", HOLDS="1").wait(DEADLINE_S) == 143, programs.log("ended")
    assert job.end(job.start("one")) == [0], programs.log("one")
    assert job.account() == [(TASKS, 0, TASKS * SAMPLES, SAMPLES, 0)]


def test_an_exception_in_the_mapper_fails_its_task_alone(programs):
    """After --task_timeout_max failures the task is discarded, and the end of the job says so."""
    programs.write("train.py", TRAIN.replace("READER", THREADS))
    job = Job(programs, odd=3, passes=1)
    program = job.start("one")
    assert program.wait(DEADLINE_S) != 0
    until(lambda: job.record()["end"], "the end of the job")
    assert job.account() == [(TASKS - 1, 1, (TASKS - 1) * SAMPLES, 0, 0)]
    assert "ValueError: an odd sample" in programs.log("one")
    assert "end of pass 0" in programs.log("one")


LOOP = """
paddle.init()
name = sys.argv[1]
cloud = paddle.reader.creator.cloud_reader(["data/part-*"], "store", timeout_sec=5, buf_size=8)
for number in range(2):
    print("pass", number, "has", len(list(cloud())), flush=True)
"""
CLIENT = """
import paddle.v2.master as master
paddle.init()
client = master.client("store", 5)
assert client.set_dataset(["data/part-*"]) == 0
assert client.request_save_model("me", 5000) == -1
for number in range(2):
    client.paddle_start_get_records(number)
    count = 0
    while True:
        record, status = client.next_record()
        if status < 0:
            break
        count += 1
    assert (record, status) == (None, -2)
    print("pass", number, "has", count, "saves", client.request_save_model("me", 5000), flush=True)
client.release()
"""


@pytest.mark.parametrize(("program", "more"), [(LOOP, ""), (CLIENT, " saves 1")])
def test_a_loop_of_a_program_reads_all_tasks_of_each_pass(programs, program, more):
    programs.write("train.py", program)
    job = Job(programs, servers=0)
    assert job.end(job.start("one")) == [0], programs.log("one")
    for number in range(2):
        assert f"pass {number} has {TASKS * SAMPLES}{more}\n" in programs.log("one")
    assert job.account() == [WHOLE] * 2


def test_an_empty_record_is_a_record(programs):
    """In v0.11 it ended the pass."""
    programs.write("train.py", CLIENT.replace(" saves", " records").replace("count += 1", "count += record == b''"))
    job = Job(programs, servers=0, passes=2)
    with RecordIOWriter(programs.folder / "data/part-9") as file:
        for record in (b"", b"x", b""):
            file.write(record)
    assert job.end(job.start("one")) == [0], programs.log("one")
    assert "pass 1 has 2" in programs.log("one")
