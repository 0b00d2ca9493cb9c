"""Check whether a directory lies on a mounted volume, according to /proc/self/mountinfo.

In a container, a directory without a mounted volume lies on the container's own file system, which is deleted with the
container. A Job that writes to such a directory succeeds, but its result is lost. The data job of the tutorial of 2017
had this error: it mounted the volume at /mnt and wrote to /home/work/mfs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paddle_base.runtime.errors import ConfigError, VolumeError
from paddle_cluster.prepare.log import say

MOUNTINFO = Path("/proc/self/mountinfo")
EMPTY_DIR = "kubernetes.io~empty-dir"  # the path of an emptyDir on its node contains this text
KERNELS_OWN = ("/proc", "/sys", "/dev")
# Kubernetes mounts the pod's hosts, resolv.conf and service account below these directories
POD_FILES = ("/etc", "/run", "/var/run")


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo: the directory `source` of the mounted file system is visible at the path `point`."""

    point: Path
    source: str


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts in the text of /proc/self/mountinfo; lines of another form are ignored.

    The fields 4 and 5 of a line are `source` and `point`. In these fields, blanks, tabs, line feeds and backslashes are
    written as octal numbers. Source: proc(5).
    """
    fields = (line.split(" ") for line in text.splitlines())
    return [Mount(Path(_unescape(words[4])), _unescape(words[3])) for words in fields if len(words) > 6]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def find_mount(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that holds an absolute path without links; of several mounts on one point, the last counts."""
    under = [mount for mount in mounts if path == mount.point or mount.point in path.parents]
    return max(enumerate(under), key=lambda each: (len(each[1].point.parts), each[0]), default=(0, None))[1]


def require_volume(out_dir: Path, mountinfo: Path) -> None:
    """Check that files in `out_dir` outlive this container, according to its mounts.

    An emptyDir outlives the container, but is deleted with the pod. An emptyDir is accepted with a warning in the log.
    Raises: ConfigError: if `out_dir` lies on the container's own file system.  VolumeError: if the list of mounts
    cannot be read.
    """
    try:
        mounts = parse_mounts(mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        advice = "REQUIRE_VOLUME=0 disables the check"
        raise VolumeError(f"cannot read {mountinfo}: {error.strerror}; {advice}") from error
    mount = find_mount(Path(os.path.realpath(out_dir)), mounts)
    if mount and EMPTY_DIR in mount.source:
        say(f"WARNING: OUT_DIR is {out_dir}, and {mount.point} is an emptyDir, which is deleted with this pod")
    if mount and mount.point != Path("/"):
        return
    volumes = sorted({str(each.point) for each in mounts if _may_be_volume(each.point)})
    mounted = f"mounted are {', '.join(volumes)}" if volumes else "no volume is mounted"
    raise ConfigError(
        f"OUT_DIR is {str(out_dir)!r}, which lies on no mounted volume: data in it is lost with this "
        f"container ({mounted}); set it to <mount path of the volume>/<JOB_NAME>, or REQUIRE_VOLUME=0 to write there"
    )


def _may_be_volume(point: Path) -> bool:
    inside = {str(each) for each in (point, *point.parents)}
    try:
        is_directory = point.is_dir()
    except OSError:  # this user may not look into a directory above the mount
        return False
    return point != Path("/") and is_directory and not inside & {*KERNELS_OWN, *POD_FILES}
