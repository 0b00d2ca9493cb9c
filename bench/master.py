"""Measure `paddle master`: python bench/master.py [--tasks 1000000] [--seconds 5] [rules load pairs takeover waiting]

rules     pairs of requests ("get a task", then "finished") per second that the rules decide and encode, without network
          and store
load      seconds in which a leader reads and decodes a store of --tasks tasks
pairs     pairs of requests per second that the whole program answers to two client processes, each of which always has
          32 open requests. A client sends a report and the request for the next task in one message, as trainers do, or
          in two messages
takeover  seconds from the time when the leader is frozen (SIGSTOP) until the standby serves
waiting   CPU seconds per second that a master uses for 1000 connected trainers that wait for a task

pairs, takeover and load run with the directory store, and also with etcd if tests/etcd/build has compiled etcd.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

# this replaces the directory bench/, in which the module `master` would be this file
sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")

from etcd_process import BINARY, EtcdProcess
from master_processes import MasterProcess

from paddle_base.messages import envelope
from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import Caller, ClientCore
from paddle_base.messages.envelope import Envelope, MemberId
from paddle_base.messages.errors import ClosedError
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.runtime.network.open_files import make_room
from paddle_cluster.master.client import MasterClient
from paddle_cluster.master.protocol import MASTER, TRAINER
from paddle_cluster.master.store.choice import open_store
from paddle_cluster.master.store.interface import MasterStore
from paddle_cluster.master.tasks.dataset import digest_of
from paddle_cluster.master.tasks.encoding import decode_state, encode_change
from paddle_cluster.master.tasks.events import FINISHED, DatasetGiven, MemberIn, TaskReported, TaskWanted, TicketAnswer
from paddle_cluster.master.tasks.records import Head, Hold, PutFiles, PutTask, TaskRecord, TaskStatus
from paddle_cluster.master.tasks.rules import step
from paddle_cluster.master.tasks.state import MasterState, TaskSettings

MEMBER = MemberId("bench", 1)
OPEN = 32  # number of unanswered requests of a member at any time
CLIENTS = 2
MEMBERS = 1000
JOIN_S = 120.0
DEPART_S = 30.0
PART = 5000  # number of tasks whose files are stored under one key
TTL_S = 10.0


class Place:
    """A store: the flag by which a master uses it, and a function by which a client opens it."""

    def __init__(self, name: str, directory: Path, endpoint: str = "") -> None:
        self.name, self.directory, self.endpoint = name, directory, endpoint
        self.flag = f"--etcd_endpoints={endpoint}" if endpoint else f"--store_dir={directory}/store"

    def open(self) -> MasterStore:
        endpoints = [self.endpoint] if self.endpoint else []
        return open_store(endpoints, None if self.endpoint else self.directory / "store", "job", TTL_S)

    def master(self, *flags: str) -> MasterProcess:
        return MasterProcess(self.directory / f"log-{time.monotonic_ns()}", self.flag, f"--ttl={TTL_S:g}s", *flags)


@contextlib.contextmanager
def places() -> Iterator[list[Place]]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        found = [Place("directory", Path(directory))]
        if BINARY.exists():
            found.append(Place("etcd", Path(directory), stack.enter_context(EtcdProcess(Path(directory))).endpoint))
        yield found


# ----- rules


def run_rules(tasks: int, seconds: float) -> None:
    state = MasterState(TaskSettings(num_passes=1 << 20))
    files = tuple((f"/data/part-{number:07d}",) for number in range(tasks))
    step(state, DatasetGiven(0, "0" * 64, "", tasks, files), 0.0)
    step(state, MemberIn(MEMBER), 0.0)
    began, pairs = time.perf_counter(), 0
    used = time.process_time()
    while (took := time.perf_counter() - began) < seconds:
        pass_number = state.table.pass_number
        given = step(state, TaskWanted(1, MEMBER, pairs, pass_number, 1e9), took)
        answer = next(one for one in given.effects if isinstance(one, TicketAnswer))
        task = answer.body["task"]
        done = step(state, TaskReported(2, MEMBER, pass_number, task["id"], task["epoch"], FINISHED, 1), took)
        assert any(isinstance(one, TicketAnswer) and one.body["accepted"] for one in done.effects)
        for change in (*given.changes, *done.changes):
            encode_change(change)
        pairs += 1
    used = time.process_time() - used
    print(f"rules: {pairs / took:.0f} pairs/s of {tasks} tasks, {pairs / used:.0f} per second of processor time")


# ----- load


def run_load(place: Place, tasks: int) -> None:
    fill(place, tasks)
    store = place.open()
    leadership = store.campaign(lambda: False, lambda _: None)
    assert leadership is not None
    gc.disable()  # the master also reads the store without garbage collection
    began, used = time.perf_counter(), time.process_time()
    state = decode_state(TaskSettings(), leadership.load(), time.time())
    took, used = time.perf_counter() - began, time.process_time() - used
    gc.enable()
    assert state.table.done == tasks - 1
    leadership.resign()
    print(
        f"load ({place.name}): {tasks} tasks, each with a key, read and decoded in {took:.2f} s, "
        f"of which {used:.2f} s are processor time of this process"
    )


def fill(place: Place, tasks: int) -> None:
    """Store a job in which every task except one is done."""
    leadership = place.open().campaign(lambda: False, lambda _: None)
    assert leadership is not None
    lost: list[Exception] = []
    with ClaimKeeper(leadership.claim, lost.append):
        list(leadership.load())
        names = [f"/data/part-{number:07d}" for number in range(tasks)]
        digest = digest_of(names)
        for number, first in enumerate(range(0, tasks, PART)):
            part = tuple((name,) for name in names[first : first + PART])
            leadership.commit([encode_change(PutFiles(digest, number, part))])
        leadership.commit([encode_change(Head(digest, "", tasks, tasks))])
        hold = (Hold(MEMBER, 1, 3, time.time(), 0.0),)
        for first in range(1, tasks, PART):
            some = range(first, min(tasks, first + PART))
            record = TaskRecord(0, TaskStatus.DONE, 3, 0, 1, hold, 12.345678, 6400)
            leadership.commit([encode_change(PutTask(number, record)) for number in some])
    assert not lost
    leadership.resign()


# ----- pairs


class Asking:
    """A member that always has OPEN unanswered requests; it counts the completed pairs.

    Args: is_one: whether a report also requests the next task.
    """

    def __init__(self, place: Place, number: int, *, is_one: bool) -> None:
        self.pairs, self._is_one, self._is_leaving = 0, is_one, False
        self._numbers = itertools.count(1)
        host, _, port = place.open().find().rpartition(":")
        core = ClientCore(MASTER, "job", MemberId(f"client-{number}", 1), "the master", _hello)
        self._caller = Caller(core, self, print)
        self._client = ControlClient(host, int(port), self._caller, None)

    def welcomed(self, server: MemberId, welcome: Any) -> None:
        for _ in range(OPEN):
            self._want(0)

    def pushed(self, kind: str, body: Any) -> None: ...

    def disconnected(self, reason: str) -> None: ...

    def _want(self, pass_number: int) -> None:
        question = {"request": next(self._numbers), "pass": pass_number, "patience": 60.0}
        self._caller.submit("get_task", question, 120.0).add_done_callback(self._got)

    def _got(self, answer: Any) -> None:
        if answer.exception() is not None:
            return
        self._take(answer.result())

    def _take(self, body: Any) -> None:
        if self._is_leaving:
            return
        if body["state"] != "task":
            self._want(body["pass"])
            return
        report = {"id": body["task"]["id"], "epoch": body["task"]["epoch"], "pass": body["pass"]}
        more = {"request": next(self._numbers), "pass": body["pass"]} if self._is_one else None
        report |= {"outcome": FINISHED, "samples": 1, "reason": "", "next": more}
        pass_number = body["pass"]
        with contextlib.suppress(ClosedError):
            answer = self._caller.submit("report_task", report, 120.0)
            answer.add_done_callback(lambda done: self._done(done, pass_number))

    def _done(self, answer: Any, pass_number: int) -> None:
        if answer.exception() is not None:
            return
        self.pairs += 1
        if self._is_leaving:
            return
        following = answer.result()["next"]
        with contextlib.suppress(ClosedError):
            self._take(following) if following else self._want(pass_number)

    def close(self) -> None:
        """Give the tasks back; otherwise the next run waits at the end of its pass for tasks that nobody has."""
        self._is_leaving = True
        self._caller.submit("depart", {}, DEPART_S).result()
        self._client.close()


def _hello() -> dict[str, str]:
    return {"role": TRAINER, "config": "", "number": None}


def ask(place: Place, number: int, seconds: float, answers: Any, is_one: bool) -> None:
    asking = Asking(place, number, is_one=is_one)
    time.sleep(0.5)  # both clients send requests after this time
    before, began = asking.pairs, time.perf_counter()
    time.sleep(seconds)
    answers.put((asking.pairs - before) / (time.perf_counter() - began))
    asking.close()


def run_pairs(place: Place, tasks: int, seconds: float, *, is_one: bool) -> None:
    with place.master("--num_passes=1000000", "--linger=1s") as process:
        process.wait_for("serving on")
        with MasterClient(place.open(), "job", MEMBER) as client:
            client.set_dataset([f"/data/part-{number:07d}" for number in range(tasks)])
            client.leave()
        answers: Any = multiprocessing.Queue()
        used = cpu_seconds(process.process.pid)
        began = time.perf_counter()
        clients = [
            multiprocessing.Process(target=ask, args=(place, number, seconds, answers, is_one))
            for number in range(CLIENTS)
        ]
        for one in clients:
            one.start()
        rates = [answers.get(timeout=seconds + 60) for _ in clients]
        share = (cpu_seconds(process.process.pid) - used) / (time.perf_counter() - began)
        for one in clients:
            one.join()
        if not all(rates):
            raise SystemExit(f"a client had no answer in {seconds:g} s; the log of the master:\n{process.text()}")
        kind = "one message a pair" if is_one else "two messages a pair"
        print(f"pairs ({place.name}, {kind}): {sum(rates):.0f} pairs/s, the master uses {share:.2f} of a core")
        process.signal(signal.SIGKILL)
        process.end()


# ----- takeover


def run_takeover(place: Place) -> None:
    with place.master() as first:
        first.wait_for("serving on")
        with place.master() as second:
            second.wait_for("stands by")
            first.signal(signal.SIGSTOP)
            took = second.wait_for("serving on", 60)
            print(f"takeover ({place.name}): {took:.2f} s from SIGSTOP to serving with --ttl={TTL_S:g}s")
            second.signal(signal.SIGKILL)
            second.end()
        first.signal(signal.SIGKILL)


# ----- waiting


def run_waiting(place: Place, seconds: float) -> None:
    with place.master("--member_ttl=60s") as process:
        process.wait_for("serving on")
        make_room(4 * MEMBERS)
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, 2 * MEMBERS)
        address = place.open().find()
        sockets = [join(context, address, number) for number in range(MEMBERS)]
        until = time.monotonic() + JOIN_S
        while f"members: {MEMBERS}" not in process.text():
            assert time.monotonic() < until
            beat(sockets, 1.0)
        for one in sockets:
            question = {"request": 1, "pass": 0, "patience": 3600.0}
            one.send(envelope.encode(Envelope("get_task", question, 1, 1)))
        beat(sockets, 2.0)
        used, began = cpu_seconds(process.process.pid), time.perf_counter()
        beat(sockets, seconds)
        share = (cpu_seconds(process.process.pid) - used) / (time.perf_counter() - began)
        print(f"waiting: {MEMBERS} trainers with a heartbeat a second cost {share:.3f} of a core")
        context.destroy(0)
        process.signal(signal.SIGKILL)


def join(context: Any, address: str, number: int) -> Any:
    dealer = context.socket(zmq.DEALER)
    dealer.connect(f"tcp://{address}")
    body = {"protocol": MASTER.title, "realm": "job", "member": {"uid": f"t{number}", "incarnation": 1}}
    dealer.send(envelope.encode(Envelope(envelope.JOIN, {**body, "hello": _hello()})))
    return dealer


def beat(sockets: list[Any], seconds: float) -> None:
    """Send a heartbeat of every member once per second, evenly distributed over the second."""
    said = envelope.encode(Envelope(envelope.BEAT, {}, 0, 1))
    began = time.monotonic()
    for turn in itertools.count():
        if turn / len(sockets) >= seconds:
            return
        time.sleep(max(0.0, began + turn / len(sockets) - time.monotonic()))
        one = sockets[turn % len(sockets)]
        with contextlib.suppress(zmq.Again):
            while True:
                one.recv(zmq.DONTWAIT)
        one.send(said)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("parts", nargs="*", default=["rules", "load", "pairs", "takeover", "waiting"])
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if "rules" in chosen.parts:
        run_rules(chosen.tasks, chosen.seconds)
    for part in ("load", "pairs", "takeover"):
        if part not in chosen.parts:
            continue
        with places() as found:
            for place in found:
                if part == "load":
                    run_load(place, chosen.tasks)
                elif part == "pairs":
                    run_pairs(place, 20_000, chosen.seconds, is_one=True)
                    run_pairs(place, 20_000, chosen.seconds, is_one=False)
                else:
                    run_takeover(place)
    if "waiting" in chosen.parts:
        with places() as found:
            run_waiting(found[0], chosen.seconds)


if __name__ == "__main__":
    main()
