"""The directory of tasks.json, as masters look at it before they campaign."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from paddle_base.runtime.errors import VolumeError
from paddle_cluster.master.recording import check_output


def test_masters_that_start_in_the_same_moment_do_not_disturb_each_other(tmp_path):
    output = tmp_path / "output"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: check_output(output), range(200)))
    assert list(output.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VolumeError, match=r"--output=.*file/output cannot be written: Not a directory"):
        check_output(tmp_path / "file" / "output")
