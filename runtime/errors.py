"""What can go wrong, and the exit code that says so to the Job's podFailurePolicy.

    PaddleError
     +- NothingFoundError      1  what a command was asked to show is not in the files; nothing is written
     +- UsageError            64  a flag that is unknown, malformed or impossible
     +- DataError             65  bad data, or the user's provider or config raised
     |   +- DamagedError      65  a checkpoint or pass is not as it was written
     +- MissingInputError     66  a config, list, data or model file that is not there
     +- PeerUnreachableError  69  a program that should answer does not (yet)
     +- BugError              70  our own mistake
     +- VolumeError           74  the volume is full, read-only or not writable, or its server is away
     +- LostPeerError         75  a program of the job that did answer is gone
     +- PortInUseError        75  another process holds the port
     +- DirectoryInUseError   75  another run writes into the directory
     +- LeadershipLostError   75  another master leads, or this one was frozen for too long; a standby goes on
     +- LeaseLostError        75  another process may hold what this one has claimed; a restart claims anew
     +- SetAsideError         75  a save that the launcher chose was damaged; the next attempt takes an older one
     +- ApiForbiddenError     77  the Kubernetes API server refuses this service account
     +- ConfigError           78  a bad environment or config, or something not supported yet
     +- StoppedError         143  ended by SIGTERM
         +- InterruptError   130  ended by Ctrl-C (SIGINT); the `paddle` command then dies of SIGINT itself

64, 65, 66, 77 and 78 fail the same way every time and are not to be retried; the others may pass.
"""

from __future__ import annotations

import errno
import signal


class PaddleError(Exception):
    """Anything that a program of ours reports in one line and ends with."""

    exit_code = 70


class NothingFoundError(PaddleError):
    """What a command was asked to show is not in the files that it was given."""

    exit_code = 1


class UsageError(PaddleError):
    """The command line is wrong."""

    exit_code = 64


class DataError(PaddleError):
    """The data is bad, or the user's provider or config raised."""

    exit_code = 65


class DamagedError(DataError):
    """A checkpoint or a pass is not as it was written: another one is needed. Never said of what cannot be read now."""


class MissingInputError(PaddleError):
    """A file or directory that the job needs does not exist."""

    exit_code = 66


class LostFileError(MissingInputError):
    """A file of a save that was complete is gone, or is no file any more."""


class PeerUnreachableError(PaddleError):
    """A program of the job did not answer, or not as a member of this job and attempt, until the deadline."""

    exit_code = 69


class BugError(PaddleError):
    """A promise between our own modules is broken."""

    exit_code = 70


class VolumeError(PaddleError):
    """Output cannot be written, or the volume that input lies on does not answer."""

    exit_code = 74


class LostPeerError(PaddleError):
    """A program of the job that had joined is dead, hangs or gave up."""

    exit_code = 75


HELD_PORT = "another process holds this port"


class PortInUseError(PaddleError):
    """The address and port that we should listen on are taken.

    Its text contains HELD_PORT. Launchers and report tell it by that from a lost peer, which has the same status.
    """

    exit_code = 75


class DirectoryInUseError(PaddleError):
    """Another run writes into the directory that this one is to save to."""

    exit_code = 75


class LeadershipLostError(PaddleError):
    """Another master leads, or this one could not renew its leadership: it ends, and a standby or restart goes on."""

    exit_code = 75


class LeaseLostError(PaddleError):
    """Another process may hold what this one had claimed in the registry: it ends, and a restart claims anew."""

    exit_code = 75


class SetAsideError(PaddleError):
    """What this attempt was to go on from is damaged and has been set aside; the next attempt takes an older save."""

    exit_code = 75


class ApiForbiddenError(PaddleError):
    """The Kubernetes API server refuses this service account."""

    exit_code = 77


class ConfigError(PaddleError):
    """The environment or the config is wrong, or asks for what is not supported yet."""

    exit_code = 78


class StoppedError(PaddleError):
    """SIGTERM arrived."""

    exit_code = 143


class InterruptError(StoppedError):
    """SIGINT arrived: somebody pressed Ctrl-C."""

    exit_code = 130


STOP_CODES = (StoppedError.exit_code, InterruptError.exit_code)  # how a run ends that somebody stopped


def stopped_by(number: int) -> StoppedError:
    """Return the error with which a signal ends a program."""
    name = signal.Signals(number).name
    return InterruptError(f"stopped by {name}") if number == signal.SIGINT else StoppedError(f"stopped by {name}")


# of the volume and not of the file: a disk, a network file system whose server is away or came back as another one, a
# mount that lost its client; once it is mended, the same file can be read
SICK_VOLUME = frozenset({
    errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNABORTED,
    errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EREMOTEIO,
})  # fmt: skip


def reading_error(kind: type[PaddleError], message: str, error: OSError) -> PaddleError:
    """Return how to report a file that cannot be read: by this kind of error, or by a VolumeError, which may pass."""
    if error.errno in SICK_VOLUME:
        return VolumeError(f"{message}: {error.strerror}; look after the volume")
    return kind(f"{message}: {error.strerror}")
