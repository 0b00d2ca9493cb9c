"""Whether a directory lies on a mounted volume, by what the kernel lists in /proc/self/mountinfo.

In a container everything that is not mounted into it is a layer of its own, which is deleted with it. A Job that writes
there succeeds, and its result is gone: the blog's data job of 2017 mounted /mnt and wrote to /home/work/mfs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prepare.errors import OutputError, SettingsError
from prepare.log import say

MOUNTINFO = Path("/proc/self/mountinfo")
EMPTY_DIR = "kubernetes.io~empty-dir"  # part of the directory on the node that an emptyDir is mounted from
KERNELS_OWN = ("/proc", "/sys", "/dev")
POD_FILES = ("/etc", "/run", "/var/run")  # where a pod's own files are mounted: hosts, resolv.conf, service account


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo. source: the directory of the mounted file system that is seen at `point`."""

    point: Path
    source: str


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts that a text of /proc/self/mountinfo lists; lines of another form are left out.

    Source: proc(5): fields 4 and 5 are root and mount point, with blanks, tabs, line feeds and backslashes in octal.
    """
    fields = (line.split(" ") for line in text.splitlines())
    return [Mount(Path(_unescape(words[4])), _unescape(words[3])) for words in fields if len(words) > 6]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def find_mount(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that an absolute path without links lies on: of the deepest mount points the last one."""
    under = [mount for mount in mounts if path == mount.point or mount.point in path.parents]
    return max(enumerate(under), key=lambda each: (len(each[1].point.parts), each[0]), default=(0, None))[1]


def require_volume(out_dir: Path, mountinfo: Path) -> None:
    """Return when what is written to `out_dir` outlives this container, as far as its mounts tell.

    An emptyDir outlives the container, but not its pod: a line says so.
    Raises: SettingsError: `out_dir` lies on the root file system.  OutputError: the list of mounts cannot be read.
    """
    try:
        mounts = parse_mounts(mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        advice = "REQUIRE_VOLUME=0 leaves the check out"
        raise OutputError(f"cannot read {mountinfo}: {error.strerror}; {advice}") from error
    mount = find_mount(Path(os.path.realpath(out_dir)), mounts)
    if mount and EMPTY_DIR in mount.source:
        say(f"WARNING: OUT_DIR is {out_dir}, and {mount.point} is an emptyDir, which is deleted with this pod")
    if mount and mount.point != Path("/"):
        return
    volumes = sorted({str(each.point) for each in mounts if _may_be_volume(each.point)})
    mounted = f"mounted are {', '.join(volumes)}" if volumes else "no volume is mounted"
    raise SettingsError(
        f"OUT_DIR is {str(out_dir)!r}, which lies on no mounted volume: what is written there is lost with this "
        f"container ({mounted}); set it to <mount path of the volume>/<JOB_NAME>, or REQUIRE_VOLUME=0 to write there"
    )


def _may_be_volume(point: Path) -> bool:
    inside = {str(each) for each in (point, *point.parents)}
    return point != Path("/") and point.is_dir() and not inside & {*KERNELS_OWN, *POD_FILES}
