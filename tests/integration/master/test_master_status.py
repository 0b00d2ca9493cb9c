"""`paddle status` of a job with a master: what it says is true in the middle, after a kill, a takeover and the end."""

import contextlib
import io
import json
import re
import signal
from pathlib import Path

from master_processes import MasterProcess, train, trainer
from waiting import until

from paddle.command import main
from paddle_base.registry.choice import open_registry
from paddle_base.registry.servers import JOB_END
from paddle_cluster.master.client import TaskGrant

FILES = [f"part-{number:02d}" for number in range(4)]


def show(output: Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["status", str(output)]) == 0
    return said.getvalue()


def wait_shown(output: Path, *texts: str) -> str:
    """Return the status as soon as it has all texts."""
    until((output / "tasks.json").exists, "the first state of the master")

    def show_whole() -> str:
        found = show(output)
        return found if all(text in found for text in texts) else ""

    return until(show_whole, f"a status with all of {texts}")


def end_of(store: Path) -> dict[str, str]:
    found = open_registry([], store, "job").read(JOB_END)
    return dict(json.loads(found[JOB_END].value)) if found else {}


def test_the_status_in_the_middle_after_a_kill_and_at_the_end(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    flags = (f"--store_dir={store}", f"--output={output}", "--ttl=2s", "--num_passes=2", "--member_ttl=60s")
    registry = open_registry([], store, "job", 600.0)  # the claim below is not renewed
    with MasterProcess(tmp_path / "log", *flags) as process, trainer(store, "a", patience=60.0) as client:
        process.wait_for("serving on")
        wait_shown(output, "job job: no trainer has given its file list yet", "0: a.1, since", "trainer 0, a.1, joined")
        client.set_dataset(FILES)
        held = client.get_task(0)
        assert isinstance(held, TaskGrant)
        registry.put_new("ps_desired", "2")
        claim = registry.claim("ps/1", json.dumps({"host": "10.0.0.1", "ports": [7164], "sparse_ports": []}))
        assert claim is not None
        with trainer(store, "b") as other:
            assert other.number == 1
            other.leave()
        found = wait_shown(output, "trainer 1, b.1, left: it leaves", "1: 10.0.0.1:7164")
        assert "job job: pass 0 of 2; 0 trainers wait for a task\nthe master at " in found
        assert re.search(r", leader 1, wrote this state \d+\.\d", found)  # a second ago, where nothing else runs
        assert "tasks of pass 0: 3 todo, 1 pending, 0 done, 0 failed, of 4" in found
        assert "pending:\n  task 0 (part-00): trainer 0, a.1, for " in found
        assert "trainers:\n  0: a.1, since " in found and ", tasks 0\n" in found
        assert "parameter servers:\n  0: not there\n  1: 10.0.0.1:7164\n" in found
        process.signal(signal.SIGKILL)
        process.end()
        found = wait_shown(output, "the master has not written for ")
        assert "it was killed, is frozen or cannot write here; the lines below show the last known state" in found
        assert "  task 0 (part-00): trainer 0, a.1, for " in found
        with MasterProcess(tmp_path / "log2", *flags) as second:
            found = wait_shown(output, "leader 2", "tasks of pass 0: 3 todo, 1 pending")
            assert "trainer 1, b.1, left: it leaves" in found, "the history goes on"
            assert client.finish(held, 1)
            for _ in train(client, FILES):
                assert end_of(store) == {}
            client.leave()
            assert second.end() == 0
    found = show(output)
    assert found.startswith("job job: done, all 2 passes, and the model is saved\nthe master ended ")
    assert "the lines below show the state at that time" in found and "status" not in found
    assert (
        "  1: 4 tasks finished, 0 discarded, 0 dispatches repeated, 0 failures, 4 samples, 0 repeated samples, ended "
        in found
    )
    assert end_of(store) == {"phase": "done", "reason": ""}


def test_the_status_of_a_job_that_has_failed(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    flags = (f"--store_dir={store}", f"--output={output}", "--task_timeout_max=0")
    with MasterProcess(tmp_path / "log", *flags) as process, trainer(store, "a") as client:
        client.set_dataset(FILES[:1])
        held = client.get_task(0)
        assert isinstance(held, TaskGrant) and client.fail(held, "a bad chunk")
        client.leave()
        assert process.end() == 65
    reason = "all 1 tasks of pass 0 have failed; see the log for the reasons"
    found = show(output)
    assert found.startswith(f"job job: failed in pass 0 of 1: {reason}\nthe master ended ")
    assert f" ago, status 65: {reason}; the lines below" in found
    assert "discarded for this pass:\n  0 (part-00)\n" in found
    assert end_of(store) == {"phase": "failed", "reason": reason}


def test_the_status_of_a_job_whose_master_was_stopped(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    with MasterProcess(tmp_path / "log", f"--store_dir={store}", f"--output={output}") as process:
        process.wait_for("serving on")
        process.signal(signal.SIGTERM)
        assert process.end() == 143
        said = f"to continue job 'job', start `paddle master` again with the same store, --store_dir={store}"
        assert said in (tmp_path / "log").read_text()
    found = show(output)
    assert " ago, status 143: stopped by SIGTERM; the lines below show the state at that time" in found
    assert "start `paddle master` again with the same store to continue the job" in found
    assert end_of(store) == {}


def test_an_output_that_cannot_be_written_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    flags = (f"--store_dir={tmp_path}/store", f"--output={tmp_path}/file/output")
    with MasterProcess(tmp_path / "log", *flags) as process:
        assert process.end() == 74
        assert f"--output={tmp_path}/file/output cannot be written: Not a directory" in process.text()
