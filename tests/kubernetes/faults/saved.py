"""Check the volume after a fault: passes and checkpoints that are marked as complete must be complete."""

import json

from long_job import LongJob, read_files


def check_saved(job: LongJob) -> int:
    """Check every pass and checkpoint that is marked as complete, and return the number of complete passes.

    A pass must equal the pass of the undisturbed run, if that run has it. A checkpoint must have the files of its list.
    """
    assert job.reference, "there is nothing to compare with"
    marks = sorted(job.output.glob("pass-*/done"))
    for mark in marks:
        ours, theirs = read_files(mark.parent), read_files(job.reference / mark.parent.name)
        assert ours == theirs or not theirs, f"{mark.parent} is marked as whole, and is not"
    for mark in job.output.glob("state/pass-*/done"):
        sizes = json.loads((mark.parent / "job.json").read_text())["files"]
        found = {name: (mark.parent / name).stat().st_size for name in sizes}
        assert found == sizes, f"{mark.parent} is marked as complete, and is not"
    return len(marks)
