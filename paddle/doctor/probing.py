"""Runs all checks at the same time, with one deadline."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paddle.doctor.findings import Diagnosis
from paddle_base.runtime.errors import BugError, ConfigError, PeerUnreachableError, VolumeError
from paddle_base.runtime.network.redaction import Secrets


@dataclass(frozen=True)
class DoctorCase:
    """The input of all checks.

    `volume`: the directory to check; if empty, the environment names it.  `roles`: the programs whose rights are
    checked; if empty, the programs of this pod.  `secrets`: collects all texts that must not be printed.
    """

    environ: Mapping[str, str]
    volume: str = ""
    roles: Sequence[str] = ()
    secrets: Secrets = field(default_factory=Secrets)


@dataclass(frozen=True)
class DoctorProbe:
    """A check. `module`: imported in the check's thread.  `silent_code`: exit code of a check without a result."""

    subject: str
    module: str
    function: str
    silent_code: int

    def run(self, case: DoctorCase) -> list[Diagnosis]:
        """Return the results of the check; if the check itself fails, return this failure as the result."""
        try:
            check: Callable[[DoctorCase], list[Diagnosis]] = getattr(
                importlib.import_module(self.module), self.function
            )
            return check(case)
        except ImportError as error:
            return [
                Diagnosis(
                    self.subject,
                    f"a module cannot be imported: {error}",
                    "the programs do not start",
                    "install the project again: pip install --force-reinstall paddle-on-kubernetes",
                    ConfigError.exit_code,
                )
            ]
        # a bug of one check must not hide the results of the others
        except Exception as error:
            return [
                Diagnosis(
                    self.subject,
                    f"the check itself failed: {type(error).__name__}: {error}",
                    "the result of this check is unknown",
                    "report this bug with this line",
                    BugError.exit_code,
                )
            ]


_MACHINE = "paddle.doctor.machine"
PROBES = (
    DoctorProbe("packages", "paddle.doctor.packages", "check_packages", ConfigError.exit_code),
    DoctorProbe("processors", _MACHINE, "check_processors", 0),
    DoctorProbe("matrix products", _MACHINE, "check_products", 0),
    DoctorProbe("compiled kernels", _MACHINE, "check_kernels", 0),
    DoctorProbe("shared memory", _MACHINE, "check_shared_memory", 0),
    DoctorProbe("volume", "paddle.doctor.volume", "check_volume", VolumeError.exit_code),
    DoctorProbe("secret", "paddle.doctor.job", "check_secret", ConfigError.exit_code),
    DoctorProbe("API server", "paddle.doctor.job", "check_api", PeerUnreachableError.exit_code),
)


def run_all(case: DoctorCase, limit_s: float, probes: Sequence[DoctorProbe] = PROBES) -> list[Diagnosis]:
    """Return the results of all checks in the order of `probes`, after `limit_s` seconds at the latest.

    A check that has not ended in time counts as a problem. The process can end while the check's thread still runs.
    """
    answers: dict[str, list[Diagnosis]] = {}

    def answer(probe: DoctorProbe) -> None:
        answers[probe.subject] = probe.run(case)

    threads = [threading.Thread(target=answer, args=(probe,), name=probe.subject, daemon=True) for probe in probes]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found: list[Diagnosis] = []
    for probe in probes:
        found += answers.get(probe.subject) or [_silence(probe, limit_s)]
    return found


def _silence(probe: DoctorProbe, limit_s: float) -> Diagnosis:
    return Diagnosis(
        probe.subject,
        f"no answer within {limit_s:g} s",
        "the programs of a job would also wait for this answer",
        "find out what the check waits for, or allow more time with --timeout",
        probe.silent_code,
    )
