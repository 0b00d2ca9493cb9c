"""The errors of all programs, and their exit codes for the Job's podFailurePolicy.

    PaddleError
     +- NothingFoundError      1  the files do not contain what a command was to show; nothing is written
     +- UsageError            64  a flag that is unknown, malformed or impossible
     +- DataError             65  bad data, or the user's provider or config raised an exception
     |   +- DamagedError      65  a checkpoint or pass is damaged
     +- MissingInputError     66  a config, list, data or model file does not exist
     +- PeerUnreachableError  69  a program of the job or a service does not answer
     +- BugError              70  a bug of this project
     +- VolumeError           74  the volume is full, read-only or not writable, or its server does not answer
     +- LostPeerError         75  a connected program of the job is lost
     +- PortInUseError        75  another process holds the port
     +- DirectoryInUseError   75  another run writes into the directory
     +- LeaseLostError        75  another process may hold this process's claim or lead; a restart claims again
     +- SetAsideError         75  a save that the launcher chose was damaged; the next attempt uses an older one
     +- ApiForbiddenError     77  the Kubernetes API server or the server of DATA_URL refuses access
     +- ConfigError           78  a bad environment or config, or something not supported yet
     +- StoppedError         143  ended by SIGTERM
         +- InterruptError   130  ended by Ctrl-C (SIGINT); the `paddle` command then dies of SIGINT itself

Errors with the exit codes 64, 65, 66, 77 and 78 recur at every retry. Programs are therefore not restarted after these
errors. Other errors may be temporary. No I/O.
"""

from __future__ import annotations

import errno
import re
import signal


class PaddleError(Exception):
    """An error that a program reports in one line before it ends."""

    exit_code = 70


class NothingFoundError(PaddleError):
    """The given files do not contain what a command was to show."""

    exit_code = 1


class UsageError(PaddleError):
    """The command line is wrong."""

    exit_code = 64


class DataError(PaddleError):
    """The data is bad, or the user's provider or config raised an exception."""

    exit_code = 65


class DamagedError(DataError):
    """A checkpoint or a pass is damaged, and another save is needed. A temporary read error never raises this error."""


class MissingInputError(PaddleError):
    """A file or directory that the job needs does not exist."""

    exit_code = 66


class LostFileError(MissingInputError):
    """A file of a complete save was removed, or is not a regular file any more."""


class PeerUnreachableError(PaddleError):
    """A program did not answer before the deadline, or its answer showed that it belongs to another job or attempt."""

    exit_code = 69


class BugError(PaddleError):
    """A module of this project has used another module in a way that is not allowed."""

    exit_code = 70


class VolumeError(PaddleError):
    """Output cannot be written, or the volume of the input does not answer."""

    exit_code = 74


class LostPeerError(PaddleError):
    """A connected program of the job has ended, hangs, or has stopped waiting."""

    exit_code = 75


HELD_PORT = "another process holds this port"


class PortInUseError(PaddleError):
    """The address and port at which the program should listen are in use.

    The text of this error contains HELD_PORT. The launcher and the report recognise the error by this text, because a
    lost peer has the same exit status.
    """

    exit_code = 75


class DirectoryInUseError(PaddleError):
    """Another run writes into the save directory of this run."""

    exit_code = 75


class LeaseLostError(PaddleError):
    """Another process may hold this process's claim in the registry, or its lease of Kubernetes.

    A standby, or this program after a restart, makes a new claim.
    """

    exit_code = 75


class SetAsideError(PaddleError):
    """The save from which this attempt should resume is damaged, and renamed. The next attempt uses an older save."""

    exit_code = 75


class ApiForbiddenError(PaddleError):
    """The Kubernetes API server refuses this service account, or the server of DATA_URL denies access."""

    exit_code = 77


class ConfigError(PaddleError):
    """The environment or the config is wrong, or requires an unsupported feature."""

    exit_code = 78


class StoppedError(PaddleError):
    """SIGTERM arrived."""

    exit_code = 143


class InterruptError(StoppedError):
    """SIGINT arrived: the user pressed Ctrl-C."""

    exit_code = 130


STOP_CODES = (StoppedError.exit_code, InterruptError.exit_code)  # exit codes of a run that a user or Kubernetes stopped


def stopped_by(number: int) -> StoppedError:
    """Return the error with which a program ends after a signal."""
    name = signal.Signals(number).name
    return InterruptError(f"stopped by {name}") if number == signal.SIGINT else StoppedError(f"stopped by {name}")


def find_exit_code(line: str) -> int:
    """Return the exit code of the error that the last line of a traceback names, or 0 if it names none of this module.

    A Python program that uses this project as a library ends with 1 after each exception.
    """
    named = re.match(rf"{re.escape(__name__)}\.(\w+)(:|$)", line)
    found = globals().get(named[1]) if named else None
    return int(found.exit_code) if isinstance(found, type) and issubclass(found, PaddleError) else 0


# Errors of the volume, after whose repair the file can be read: a disk error, a network file system whose server is
# unreachable or was restarted, or a mount without its client.
SICK_VOLUME = frozenset({
    errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNABORTED,
    errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EREMOTEIO,
})  # fmt: skip


def reading_error(kind: type[PaddleError], message: str, error: OSError) -> PaddleError:
    """Return the error for a file that cannot be read: VolumeError if the cause may be temporary, otherwise `kind`."""
    if error.errno in SICK_VOLUME:
        return VolumeError(f"{message}: {error.strerror}; check the volume")
    return kind(f"{message}: {error.strerror}")
