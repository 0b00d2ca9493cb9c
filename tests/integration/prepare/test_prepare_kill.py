"""D1 by force: the data job is killed before every single change that it makes to the volume."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forked import server

EXAMPLES = Path(__file__).parents[3] / "examples"

# Counts the calls that change the volume and sends itself SIGKILL instead of the n-th; a fork for each n.
KILLER = """
import os, shutil, signal, sys
from paddle_cluster.prepare.program import main

CHANGES = ("rename", "mkdir", "rmdir", "unlink", "link", "fsync", "write", "chown", "open")

def die_at(n):
    calls = 0
    def counted(call):
        def change(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return change
    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))

base, flags = sys.argv[1], sys.argv[2:]
n = 0
while True:
    n += 1
    job = f"{base}-{n}"
    shutil.copytree(base, job)
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        die_at(n)
        os._exit(main([f"--out_dir={job}", *flags]))
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
"""


def flags(count, seed):
    source = ["--data_source=synthetic", "--synthetic_rows=30", f"--examples_dir={EXAMPLES}"]
    return [f"--split_count={count}", f"--seed={seed}", *source]


def prepare(out_dir, count, seed):
    ended = server().run(["paddle", "prepare", f"--out_dir={out_dir}", *flags(count, seed)], out_dir.parent)
    assert ended.returncode == 0, ended.stderr


def shards(job):
    """Return the contents of all files below `<id>/data`."""
    files = (path for path in job.glob("[0-9]*/data/*"))
    return {str(path.relative_to(job)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """An old set of 3 shards with results, a new one of 2, and the trees of a run from old to new killed everywhere."""
    folder = tmp_path_factory.mktemp("killed")
    old, new = folder / "job", folder / "new"
    prepare(old, 3, seed=1)
    prepare(new, 2, seed=2)
    (old / "output" / "pass-00000").mkdir()
    (old / "output" / "pass-00000" / "done").write_text("kept")
    subprocess.run([sys.executable, "-c", KILLER, old, *flags(2, seed=2)], check=True, timeout=100)
    trees = sorted(folder.glob("job-*"), key=lambda path: int(path.name.removeprefix("job-")))
    return shards(old), shards(new), trees


def test_d1_a_kill_at_any_point_leaves_a_whole_set_or_no_shard_0(killed):
    """The original untarred, split and copied in the final places, in the order 0, 1, 2: a kill left half-written
    shards and mixtures of two splits that a job would train on."""
    old, new, trees = killed
    assert len(trees) > 60
    seen = set()
    for tree in trees:
        found = shards(tree)
        if (tree / "0" / "data").exists():
            assert found in (old, new), tree.name
            seen.add(len({name.split("/")[0] for name in found}))
    assert seen == {2, 3}


def test_d1_the_marker_is_there_only_with_the_set_that_it_describes(killed):
    """The original had no marker; a job could not tell a finished tree from a half-written one."""
    old, new, trees = killed
    described = []
    for tree in trees:
        if (tree / "prepared.json").exists():
            count = json.loads((tree / "prepared.json").read_text())["split_count"]
            assert shards(tree) == {3: old, 2: new}[count], tree.name
            described.append(count)
    assert set(described) == {2, 3}


def test_d1_the_next_run_clears_up_after_any_kill(killed):
    """The original's next run went on with whatever lay there."""
    _, new, trees = killed
    for tree in trees[::4]:
        prepare(tree, 2, seed=2)
        assert shards(tree) == new
        names = sorted(path.name for path in tree.iterdir())
        assert names == ["0", "1", "output", "prepared.json", "quick_start"], tree.name
        assert (tree / "output" / "pass-00000" / "done").read_text() == "kept"


def test_a_file_that_cannot_be_written_whole_is_never_published(tmp_path):
    """A full disk, by the limit on file size: exit 74, one line, and nothing in the volume's directory but itself."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)); "
    program = limited + "import sys; from paddle_cluster.prepare.program import main; sys.exit(main())"
    flags = [f"--out_dir={tmp_path / 'job'}", "--split_count=2", f"--examples_dir={EXAMPLES}"]
    run = subprocess.run([sys.executable, "-c", program, *flags], stderr=subprocess.PIPE, text=True, timeout=60)
    assert run.returncode == 74
    assert "File too large" in run.stderr
    assert run.stderr.count("\n") == 1
    assert not list((tmp_path / "job").glob("*"))
