"""`paddle autoscaler` as a process against an API server over HTTPS."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from autoscale.fake_api import FakeApi, job, node, pod
from forked import server
from ports import free_ports

DEADLINE_S = 60.0


class Program:
    """A process of `paddle autoscaler`, and what it has said."""

    def __init__(self, environment: dict[str, str], *flags: str) -> None:
        command = ["paddle", "autoscaler", "--namespace=science", "--interval=0.1", *flags]
        self.process = server().open(command, Path.cwd(), {**os.environ, **environment})
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._lines.append(line)

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def wait_for(self, what: str | Callable[[], Any]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not (what() if callable(what) else re.search(what, self.said)):
            assert time.monotonic() < end, f"no {what}:\n{self.said}"
            assert self.process.poll() is None, f"it has ended:\n{self.said}"
            time.sleep(0.02)

    def end(self) -> int:
        """Wait for its end."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def close(self) -> None:
        self.process.kill()
        self._reader.join(DEADLINE_S)
        self.process.close()


Start = Callable[..., Program]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    made = FakeApi(tmp_path)
    made.put("nodes", node("one"))
    made.put("nodes", node("two"))
    yield made
    made.close()


@pytest.fixture
def start(api: FakeApi) -> Iterator[Start]:
    made: list[Program] = []

    def begin(*flags: str, **environment: str) -> Program:
        made.append(Program({**api.environment, **environment}, *flags))
        return made[-1]

    yield begin
    for program in made:
        program.close()


def test_a_job_grows_to_what_the_nodes_have_room_for(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1))
    program = start()
    program.wait_for(lambda: api.parallelism("science/a") == 6)
    program.wait_for(r"science/a: 1 -> 6 trainers: there is room; 6 is what the nodes have room for")
    assert [step["path"] for step in api.patches[0][1] if step["op"] == "replace"] == ["/spec/parallelism"]


def test_a_new_job_gets_its_share_and_a_deleted_ones_is_given_back(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 6))
    for number in range(6):
        api.put("pods", pod(f"a-{number}", "a", "one" if number < 3 else "two"))
    program = start()
    program.wait_for("it leads")
    api.put("jobs", job("b", 1, creationTimestamp="2026-11-23T08:00:00Z"))
    program.wait_for(lambda: (api.parallelism("science/a"), api.parallelism("science/b")) == (3, 3))
    program.wait_for(r"science/a: 6 -> 3 trainers: 3 is its fair share among 2 jobs; science/b has less")


def test_a_node_that_vanishes_takes_its_room_along(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 6))
    program = start()
    program.wait_for("it leads")
    api.remove("nodes", "/two")
    program.wait_for(lambda: api.parallelism("science/a") == 3)
    program.wait_for("other pods take the room; 3 is what the nodes have room for")


def test_a_dry_run_changes_nothing_and_needs_no_lease(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1))
    program = start("--dry_run")
    program.wait_for(r"dry run: science/a: 1 -> 6 trainers")
    assert not api.patches and not api.items["leases"]


def test_once_ends_after_one_look(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1))
    program = start("--once")
    assert program.end() == 0
    assert "dry run: science/a: 1 -> 6 trainers" in program.said


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (job("a", 1, "9", "3"), "has paddle/trainers-min: 9, which exceeds paddle/trainers-max: 3"),
        (job("a", 1, "two"), "has paddle/trainers-min: 'two', which is not a number from 1"),
        (job("a", 1, None, "3"), "lacks the annotation paddle/trainers-min"),
        ({**job("a", 1), "spec": {**job("a", 1)["spec"], "completions": 3}}, "has completions"),
    ],
    ids=["least above most", "no number", "one of two", "completions"],
)
def test_a_job_with_bad_annotations_is_left_alone_and_named_once(
    api: FakeApi, start: Start, wrong: dict[str, Any], message: str
) -> None:
    api.put("jobs", wrong)
    api.put("jobs", job("good", 1))
    program = start()
    program.wait_for(lambda: api.parallelism("science/good") == 6)
    program.wait_for(re.escape(f"science/a {message}"))
    api.put("pods", pod("other", on="one"))  # another look
    program.wait_for(lambda: api.parallelism("science/good") in (5, 6))
    assert program.said.count(message) == 1
    assert api.parallelism("science/a") == 1
    once = start("--once")
    assert once.end() == 78
    assert "task Jobs with mistakes: 1; the first: science/a" in once.said


def test_a_job_without_annotations_is_ignored(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1, None, None))
    api.put("jobs", job("good", 1))
    program = start()
    program.wait_for(lambda: api.parallelism("science/good") == 6)
    assert api.parallelism("science/a") == 1 and "science/a" not in program.said


def test_a_job_of_kueue_is_left_to_it(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1, labels={"kueue.x-k8s.io/queue-name": "paddle"}))
    program = start()
    program.wait_for(
        r"science/a is managed by Kueue \(queue paddle\), which decides when the Job runs: the Job is ignored"
    )
    assert not api.patches


def test_without_rights_it_ends_with_77_and_names_them(api: FakeApi, start: Start) -> None:
    api.forbidden = {("GET", "nodes")}
    program = start("--start_timeout=1s")
    assert program.end() == 77
    assert "nodes is forbidden" in program.said and "k8s/tasks/autoscaler" in program.said


@pytest.mark.parametrize("right", [("PATCH", "jobs"), ("POST", "leases")])
def test_a_right_that_is_missing_later_ends_it_too(api: FakeApi, start: Start, right: tuple[str, str]) -> None:
    api.put("jobs", job("a", 1))
    api.forbidden = {right}
    program = start()
    assert program.end() == 77
    assert f"{right[1]} is forbidden" in program.said


@pytest.mark.parametrize("kind", ["nodes", "pods", "jobs"])
def test_a_watch_that_is_refused_ends_it(api: FakeApi, start: Start, kind: str) -> None:
    """A list alone is granted: without the watch it would list the cluster again and again."""
    api.forbidden = {("WATCH", kind)}
    program = start("--start_timeout=1s")
    assert program.end() == 77
    assert f"{kind} is forbidden" in program.said and "k8s/tasks/autoscaler" in program.said


def test_rights_to_read_that_are_taken_away_later_end_it(api: FakeApi, start: Start) -> None:
    program = start("--start_timeout=1s")
    program.wait_for("it leads")
    api.forbidden = {("WATCH", "pods"), ("GET", "pods")}
    assert program.end() == 77
    assert "pods is forbidden" in program.said


def test_a_refusal_that_passes_ends_nothing(api: FakeApi, start: Start) -> None:
    api.faults["WATCH", "nodes"] = [(403, {}), (403, {})]
    api.put("jobs", job("a", 1))
    program = start("--start_timeout=3s")
    program.wait_for(lambda: api.parallelism("science/a") == 6)
    program.wait_for(lambda: not api.faults["WATCH", "nodes"])
    api.remove("nodes", "/two")
    program.wait_for(lambda: api.parallelism("science/a") == 3)


def everywhere(kind: str) -> set[tuple[str, str]]:
    """The rights to read the pods or Jobs of the whole cluster."""
    return {("GET", f"None/{kind}"), ("WATCH", f"None/{kind}")}


def test_listed_namespaces_need_no_rights_to_others(api: FakeApi, start: Start) -> None:
    """The pods of every namespace were listed."""
    api.forbidden = everywhere("pods") | everywhere("jobs")
    api.put("jobs", job("a", 1))
    api.put("jobs", job("b", 1, namespace="arts"))
    api.put("jobs", job("c", 1, namespace="law"))
    program = start("--namespaces=science,arts", "--namespace_caps=arts:cpu=10")
    program.wait_for(lambda: (api.parallelism("science/a"), api.parallelism("arts/b")) == (4, 2))
    program.wait_for("arts/b: 1 -> 2 trainers: there is room; 2 is its fair share of the cap of namespace arts")
    program.wait_for("this autoscaler manages the task jobs of namespaces science, arts .Jobs: 2, nodes: 2.")
    program.wait_for("no cap bounds the trainers of: science. The autoscaler does not see the pods of other namespaces")
    assert api.parallelism("law/c") == 1


def test_a_cap_counts_for_all_namespaces_too(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1))
    api.put("jobs", job("b", 1, namespace="arts"))
    program = start("--all_namespaces", "--namespace_caps=arts:cpu=20;*:cpu=8")
    program.wait_for(lambda: api.parallelism("arts/b") == 4)
    assert api.parallelism("science/a") == 1
    assert "no cap" not in program.said


@pytest.mark.parametrize("right", [("GET", "arts/pods"), ("WATCH", "arts/jobs")])
def test_a_namespace_that_may_not_be_read_is_left_alone_until_it_may(
    api: FakeApi, start: Start, right: tuple[str, str]
) -> None:
    api.forbidden = {right}
    api.put("jobs", job("a", 1))
    api.put("jobs", job("b", 1, namespace="arts"))
    program = start("--namespaces=science,arts", "--start_timeout=1s")
    program.wait_for(
        r"W.*the Jobs of namespace arts are left alone: .* is forbidden: .* list the namespace in NAMESPACES"
    )
    program.wait_for(lambda: api.parallelism("science/a") > 1)
    program.wait_for("it leads")
    api.forbidden = set()
    program.wait_for("the autoscaler may read namespace arts now, and manages its Jobs")
    program.wait_for(lambda: api.parallelism("arts/b") > 1)
    api.forbidden = {right, ("GET", "science/pods"), ("WATCH", "science/pods")}
    api.forbidden |= {("GET", "arts/pods"), ("WATCH", "arts/pods")}
    assert program.end() == 77  # no namespace is left


def test_a_namespace_in_which_jobs_may_not_be_changed_is_left_alone(api: FakeApi, start: Start) -> None:
    api.forbidden = {("PATCH", "arts/jobs")}
    api.put("jobs", job("b", 1, namespace="arts"))
    api.put("jobs", job("c", 1, namespace="arts"))
    api.put("jobs", job("a", 1))
    program = start("--namespaces=science,arts")
    program.wait_for(lambda: api.parallelism("science/a") > 1)
    program.wait_for(r"W.*the Jobs of namespace arts are left alone: .*forbidden.*NAMESPACES.* tries again in 30 s")
    time.sleep(0.5)
    assert program.process.poll() is None and program.said.count("are left alone") == 1


@pytest.mark.parametrize("flag", ["--namespaces=science,arts", "--all_namespaces"])
def test_a_job_that_a_policy_holds_is_named_and_stops_no_other(api: FakeApi, start: Start, flag: str) -> None:
    """The autoscaler said that another program had changed the Job, and tried again each second; or it ended."""
    api.denied = {
        "science/b": "jobs.batch is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"
    }
    api.put("jobs", job("b", 1))
    api.put("jobs", job("a", 1))
    program = start(flag)
    program.wait_for(lambda: api.parallelism("science/a") > 1)
    program.wait_for(
        r"W.*science/b stays at 1 trainers instead of 3: .* denied request: no. Correct the Job, or that policy"
    )
    time.sleep(0.5)
    assert program.process.poll() is None and program.said.count("science/b stays at") == 1
    assert "changed by another program" not in program.said


def test_an_api_server_that_is_away_ends_it_with_69(start: Start) -> None:
    (port,) = free_ports(1)
    program = start("--start_timeout=1s", KUBERNETES_SERVICE_PORT_HTTPS=str(port))
    assert program.end() == 69
    assert "the API server does not answer at https://127.0.0.1" in program.said


def test_outside_of_a_cluster_it_ends_with_78(start: Start) -> None:
    program = start(KUBERNETES_SERVICE_HOST="")
    assert program.end() == 78
    assert "this program does not run in a pod" in program.said


@pytest.mark.parametrize(
    "flag",
    [
        "--interval=0s",
        "--namespace=Sci_ence",
        "--dry-run",
        "--lease=",
        "--namespaces=a,B",
        "--namespaces=a --all_namespaces",
        "--namespace_caps=cpu=8",
    ],
)
def test_a_wrong_flag_ends_it_with_64(start: Start, flag: str) -> None:
    assert start(*flag.split()).end() == 64


@pytest.mark.parametrize("status", [409, 429, 500])
def test_refused_changes_are_tried_again(api: FakeApi, start: Start, status: int) -> None:
    """It said that it tries again in a second, and then waited ten more for a change of the cluster."""
    api.put("jobs", job("a", 1))
    api.faults["PATCH", "jobs"] = [(status, {"Retry-After": "1"} if status == 429 else {})] * 2
    api.faults["GET", "pods"] = [(status, {})]
    program = start()
    program.wait_for(lambda: api.parallelism("science/a") == 6)


def test_a_watch_that_is_too_old_begins_with_a_list(api: FakeApi, start: Start) -> None:
    api.faults["WATCH", "jobs"] = [(410, {})] * 2
    program = start()
    program.wait_for("it leads")
    api.put("jobs", job("a", 1))
    program.wait_for(lambda: api.parallelism("science/a") == 6)


def test_a_job_that_is_deleted_while_it_is_scaled_is_forgotten(api: FakeApi, start: Start) -> None:
    api.put("jobs", job("a", 1))
    api.faults["PATCH", "jobs"] = [(404, {})]
    program = start()
    program.wait_for("science/a was deleted before its number of trainers was changed")
    api.remove("jobs", "science/a")
    api.put("jobs", job("b", 1))
    program.wait_for(lambda: api.parallelism("science/b") == 6)


def test_of_two_autoscalers_one_stands_by_and_goes_on_when_the_other_has_gone(api: FakeApi, start: Start) -> None:
    first = start(POD_NAME="first")
    first.wait_for("first_.* it leads")
    second = start(POD_NAME="second")
    second.wait_for(r"is held by first_.*: this autoscaler stands by")
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 143
    assert "stopped by SIGTERM" in first.said
    second.wait_for("second_.* it leads")
    api.put("jobs", job("a", 1))
    second.wait_for(lambda: api.parallelism("science/a") == 6)


def test_a_lease_that_another_one_has_taken_ends_it_with_75(api: FakeApi, start: Start) -> None:
    program = start()
    program.wait_for("it leads")
    lease = next(iter(api.items["leases"].values()))
    api.put("leases", {**lease, "spec": {**lease["spec"], "holderIdentity": "another"}})
    assert program.end() == 75
    assert "another has the lease paddle-autoscaler now, and leads instead of this autoscaler" in program.said


def test_its_pages_say_how_it_is(api: FakeApi, start: Start) -> None:
    (port,) = free_ports(1)
    api.put("jobs", job("a", 1))
    program = start(f"--metrics_port={port}", "--nics=lo")
    program.wait_for("1 -> 6 trainers")  # the API server knows of it before the program does
    page = f"http://127.0.0.1:{port}"
    assert requests.get(f"{page}/healthz", timeout=30).text == "ok\n"
    assert requests.get(f"{page}/readyz", timeout=30).text == "ok\n"
    text = requests.get(f"{page}/metrics", timeout=30).text
    assert 'paddle_autoscaler_changes_total{direction="up"} 1.0' in text


def test_its_log_has_no_token(api: FakeApi, start: Start) -> None:
    api.faults["PATCH", "jobs"] = [(500, {})]
    api.put("jobs", job("a", 1))
    program = start()
    program.wait_for(lambda: api.parallelism("science/a") == 6)
    assert "the-token-of-the-test" not in program.said
