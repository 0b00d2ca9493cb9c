"""What can go wrong, and the exit code that says so to the Job's podFailurePolicy.

    PaddleError
     +- UsageError            64  a flag that is unknown, malformed or impossible
     +- DataError             65  bad data, or the user's provider or config raised
     +- MissingInputError     66  a config, list, data or model file that is not there
     +- PeerUnreachableError  69  a program that should answer does not (yet)
     +- BugError              70  our own mistake
     +- VolumeError           74  the volume is full, read-only or not writable, or its server is away
     +- LostPeerError         75  a program of the job that did answer is gone
     +- PortInUseError        75  another process holds the port
     +- ConfigError           78  a bad environment or config, or something not supported yet
     +- StoppedError         143  ended by SIGTERM

64, 65, 66 and 78 fail the same way every time and are not to be retried; the others may pass.
"""

from __future__ import annotations

import errno


class PaddleError(Exception):
    """Anything that a program of ours reports in one line and ends with."""

    exit_code = 70


class UsageError(PaddleError):
    """The command line is wrong."""

    exit_code = 64


class DataError(PaddleError):
    """The data is bad, or the user's provider or config raised."""

    exit_code = 65


class MissingInputError(PaddleError):
    """A file or directory that the job needs does not exist."""

    exit_code = 66


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


class PortInUseError(PaddleError):
    """The address and port that we should listen on are taken."""

    exit_code = 75


class ConfigError(PaddleError):
    """The environment or the config is wrong, or asks for what is not supported yet."""

    exit_code = 78


class StoppedError(PaddleError):
    """SIGTERM arrived."""

    exit_code = 143


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
