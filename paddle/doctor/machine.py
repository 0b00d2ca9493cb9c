"""Checks the machine: its processors, numpy's matrix products, compiled kernels, and shared memory."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paddle.doctor.findings import Diagnosis
from paddle.doctor.probing import DoctorCase
from paddle_base import kernels
from paddle_base.runtime.processor.blas import NAMES, OWN, count_cores
from pserver.wire.shared_memory import SharedMemory

SHM = Path("/dev/shm")
LEAST_SHM = 64 << 20  # default size in bytes of /dev/shm in a container; Kubernetes and Docker have the same default
TRIED_BYTES = 1 << 20


def check_processors(case: DoctorCase) -> list[Diagnosis]:
    """Compare the processors that this process may use with the threads of a trainer."""
    cores, all_of_them = count_cores(), os.cpu_count() or 1
    text = f"{cores:g} of this machine's {all_of_them}"
    threads = _read_count(case.environ.get("TRAINER_COUNT", ""))
    if cores < 1:
        return [
            Diagnosis(
                "processors",
                f"{text}, by the quota of the cgroup",
                "the kernel stops all threads of the pod for a part of each tenth of a second; peers wait meanwhile",
                "raise or remove resources.limits.cpu; the job needs only resources.requests.cpu",
            )
        ]
    if threads > cores:
        return [
            Diagnosis(
                "processors",
                f"{text}; TRAINER_COUNT is {threads}",
                "threads of a trainer wait for each other on the same processor: a batch takes longer, not shorter",
                f"set TRAINER_COUNT to at most {int(cores)}, or give the pod more processors",
            )
        ]
    return [Diagnosis("processors", text)]


def check_products(case: DoctorCase) -> list[Diagnosis]:
    """Name numpy's library for matrix products, and compare the library's threads with the processors."""
    library = _name_blas()
    threads = max(1, *(_read_count(case.environ.get(name, "")) for name in (*NAMES, OWN)))
    cores = count_cores()
    each = f"{threads} thread{'s' * (threads > 1)} per matrix product"
    text = f"{library or 'a library that numpy does not name'}, {each}"
    if library == "none":
        return [
            Diagnosis(
                "matrix products",
                "numpy has no library for matrix products",
                "a product of large matrices takes many times as long",
                "pip install --force-reinstall numpy, so that its wheel brings OpenBLAS",
            )
        ]
    if threads > max(1, cores):
        return [
            Diagnosis(
                "matrix products",
                f"{text} on {cores:g} processors",
                "threads compete for the processors: a batch may take twice as long",
                f"leave {', '.join(NAMES)} and {OWN} unset, or set them to at most {max(1, int(cores))}",
            )
        ]
    return [Diagnosis("matrix products", text)]


def _read_count(text: str) -> int:
    """Return the number in a variable, or 1 if the variable contains no number."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else 1


def _name_blas() -> str:
    """Return name and version of numpy's library for matrix products; "none": numpy has none; "": unknown."""
    configuration = np.show_config(mode="dicts")
    built = configuration.get("Build Dependencies", {}) if isinstance(configuration, Mapping) else {}
    blas = built.get("blas", {}) if isinstance(built, Mapping) else {}
    if not isinstance(blas, Mapping) or not blas.get("name"):
        return ""
    if not blas.get("found", True) or blas["name"] == "none":
        return "none"
    return f"{blas['name']} {blas.get('version', '')}".strip()


def check_kernels(case: DoctorCase) -> list[Diagnosis]:
    """Check that the compiled loops of paddle_base/kernels/ are in use."""
    if kernels.compiled is not None:
        return [Diagnosis("compiled kernels", "in use")]
    is_chosen = case.environ.get("PADDLE_KERNELS") == "plain"
    return [
        Diagnosis(
            "compiled kernels",
            "disabled by PADDLE_KERNELS=plain" if is_chosen else "not installed: there was no C compiler",
            "numpy computes the same results, with more processor time for each batch",
            "unset PADDLE_KERNELS" if is_chosen else "install gcc and Python's headers, and then this project again",
        )
    ]


def check_shared_memory(case: DoctorCase) -> list[Diagnosis]:
    """Try to share memory as trainers and servers of a pod do; measure /dev/shm, which only users' code may need."""
    return [_try_memory(), _measure_shm()]


def _try_memory() -> Diagnosis:
    try:
        made = SharedMemory.make(TRIED_BYTES)
        try:
            is_open = SharedMemory.open(made.offer) is not None
        finally:
            made.close()
    except (OSError, AttributeError) as error:  # a system without memfd_create raises AttributeError
        is_open, reason = False, f": {error}"
    else:
        reason = ": another program cannot open it through /proc"
    if is_open:
        return Diagnosis("shared memory", "programs of a pod can share memory (memfd)")
    return Diagnosis(
        "shared memory",
        f"programs of a pod cannot share memory{reason}",
        "gradients between programs of the same pod travel over sockets, more slowly (bench/RESULTS.md)",
        "use Linux with /proc mounted, and programs of one pod with the same uid",
    )


def _measure_shm() -> Diagnosis:
    try:
        total = shutil.disk_usage(SHM).total
    except OSError as error:
        total, why = 0, f"{SHM} is not usable: {error.strerror}"
    else:
        why = f"{SHM} has {total >> 20} MiB"
    if total >= LEAST_SHM:
        return Diagnosis("/dev/shm", f"{total >> 20} MiB; only your own code uses it")
    return Diagnosis(
        "/dev/shm",
        why,
        "no program of this project needs it, but a data provider with multiprocessing may fail",
        "mount an emptyDir with medium: Memory at /dev/shm, if your provider needs more shared memory",
    )
