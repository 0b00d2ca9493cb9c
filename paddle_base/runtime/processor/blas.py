"""Sets the number of threads of numpy's matrix products. The number must be set before numpy is imported.

If several computing threads call products that have several threads, the program has more threads than processors. A
batch then takes twice as long.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from paddle_base.runtime.errors import ConfigError

# builds of numpy differ in the variable that they read
NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
OWN = "PADDLE_BLAS_THREADS"
_NUMBER = re.compile("[0-9]{1,18}")
# the functions of libraries of products that set the number of threads; builds of OpenBLAS have prefixes and suffixes
SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
)
_LIBRARY = re.compile(r"/[^/]*(?:openblas|mkl_rt)[^/]*\.so[^/]*$")
_MAPS = Path("/proc/self/maps")
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def limit_threads(environ: MutableMapping[str, str], users: int, flag: str) -> str:
    """Set the variables for the number of threads of products; return a log line about unusual settings, or "".

    A matrix product gets one thread. If a variable in NAMES requests more threads, the product gets that number, but at
    most the number of processors divided by `users`. PADDLE_BLAS_THREADS overrides these rules.

    Args: users: number of threads of the program that call products at the same time.  flag: the flag that sets this
        number, for the log line.
    Raises: ConfigError: PADDLE_BLAS_THREADS is not a number from 1 to 1024.
    """
    own, cores = environ.get(OWN, ""), count_cores()
    processors = f"{cores:g} processor{'s' * (cores != 1)}"
    if own:
        if not _NUMBER.fullmatch(own) or not 1 <= int(own) <= 1024:
            raise ConfigError(f"{OWN} is {own!r}; it must be a number of threads from 1 to 1024")
        environ.update(dict.fromkeys(NAMES, str(int(own))))
        return f"{OWN}={own}: each matrix product gets {own} thread{'s' * (int(own) > 1)}, with {flag} and {processors}"
    limit, cut = max(1, int(cores / users)), []
    for name in NAMES:
        asked = _read(environ.get(name, ""))
        if asked > limit:
            cut.append(f"{name}={environ[name]}")
        environ[name] = str(min(asked, limit))
    if not cut:
        return ""
    return (
        f"each matrix product gets {limit} thread{'s' * (limit > 1)} in spite of {' and '.join(cut)}, because of "
        f"{flag} and {processors}; set {OWN} to use another number"
    )


def limit_loaded(environ: Mapping[str, str]) -> None:
    """Give products the number of threads that `limit_threads` has set, if numpy has been imported before.

    A library that has none of the functions in SETTERS keeps its number of threads.
    """
    try:
        lines = _MAPS.read_text(errors="replace").splitlines()
    except OSError:  # no Linux
        return
    for path in dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if _LIBRARY.search(line)):
        try:
            library = ctypes.CDLL(path)
        except OSError:  # a file that is mapped but is no library
            continue
        for name in SETTERS:
            if hasattr(library, name):
                getattr(library, name)(int(environ[NAMES[0]]))


def _read(text: str) -> int:
    """Return the number of threads in a variable, or 1 if the variable contains no number.

    OMP_NUM_THREADS may be a list with one number for each level of nested parallelism; the first number counts.
    """
    first = text.partition(",")[0].strip()
    return int(first) if _NUMBER.fullmatch(first) and int(first) > 0 else 1


def count_cores() -> float:
    """Return the number of processors that this process may use, according to its affinity and its cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return min([cores, *_quotas(_CGROUPS, _OWN_CGROUP)])


def _quotas(root: Path, own: Path) -> list[float]:
    """Return the quotas of this process's cgroup and of its ancestors, in processors, from cgroup versions 2 and 1."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    found = []
    for line in ["0::/", "1:cpu:/", *lines]:  # in a container, the container's cgroup is mounted at the root
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        kind = next((one for one in ("cpu,cpuacct", "cpu") if (root / one).is_dir()), "cpu")
        if kinds and "cpu" not in kinds.split(","):
            continue
        place = Path(*[part for part in Path(path).parts if part not in ("/", "..")])
        for directory in [place, *place.parents]:
            found.append(_read_quota(root / kind / directory, version=1) if kinds else None)
            found.append(None if kinds else _read_quota(root / directory, version=2))
    return [quota for quota in found if quota is not None]


def _read_quota(directory: Path, version: int) -> float | None:
    try:
        if version == 2:
            quota, period = (directory / "cpu.max").read_text().split()
        else:
            quota, period = ((directory / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # the file does not exist, or contains `max`: no quota
        return None
