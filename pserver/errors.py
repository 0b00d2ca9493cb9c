"""What can go wrong, and the exit code that says so to the Job's podFailurePolicy.

    PaddleError
     +- UsageError            64  a flag that is unknown, malformed or impossible
     +- DataError             65  bad data, or the user's provider or config raised
     +- MissingInputError     66  a config, list, data or model file that is not there
     +- PeerUnreachableError  69  a program that should answer does not (yet)
     +- BugError              70  our own mistake
     +- VolumeError           74  the volume is full, read-only or not writable
     +- LostPeerError         75  a program of the job that did answer is gone
     +- PortInUseError        75  another process holds the port
     +- ConfigError           78  a bad environment or config, or something not supported yet
     +- StoppedError         143  ended by SIGTERM

64, 65, 66 and 78 fail the same way every time and are not to be retried; the others may pass.
"""

from __future__ import annotations


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
    """Output cannot be written."""

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
