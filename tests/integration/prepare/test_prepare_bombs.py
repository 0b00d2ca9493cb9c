"""Small files that hold more than the data job may take of the memory, against the real command."""

import bz2
import gzip
import lzma
import subprocess
import sys
import zipfile

import pytest

PIECE = b"0\tsome words\n" * 100_000
PIECES = 100  # 130 MB of them, which would be 500 MB of lines
MOST_KB = 256 << 10  # of addresses: the limit of 64 MiB, and what Python and its allocator add


def pack(path, kind):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("d/a.txt", "w") as output:
            for _ in range(PIECES):
                output.write(PIECE)
        return
    packed = {"gzip": gzip, "bzip2": bz2, "xz": lzma}[kind].compress(PIECE)
    path.write_bytes(packed * PIECES)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zip"])
def test_a_bomb_ends_the_data_job_before_it_fills_the_memory(tmp_path, kind):
    """Six gigabytes were taken for one of 4 GB."""
    pack(tmp_path / "bomb", kind)
    flags = [f"--out_dir={tmp_path}/job", f"--data_path={tmp_path}/bomb", "--data_source=quick_start"]
    command = [sys.executable, "-m", "paddle", "prepare", *flags, "--split_count=2", "--data_max_memory=64Mi"]
    limited = ["sh", "-c", f'ulimit -v {MOST_KB}; exec "$@"', "sh", *command]
    done = subprocess.run(limited, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert (done.returncode, "set DATA_MAX_MEMORY to a larger number" in done.stderr) == (65, True), done.stderr
    assert "the input has more than 67108864 bytes that must be held in memory" in done.stderr
    assert not list((tmp_path / "job").glob("*"))
