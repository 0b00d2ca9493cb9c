"""Reads the environment variables with which the launcher configures its programs. No additional flags are needed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.regular_files import open_regular

MAX_SECRET_BYTES = 4096
_LEAST_LETTERS = 8  # a shorter name, such as POD_IPS, may resemble a variable by accident
_SIMILARITY = 0.9  # minimum ratio of difflib; the ratio is 0.95 for NUM_PASES and NUM_PASSES
SECRET, SECRET_FILE = "PADDLE_SECRET", "PADDLE_SECRET_FILE"  # names of variables
WITHOUT_SECRET = "PADDLE_WITHOUT_SECRET"  # 1: run if the secret's file is missing, so that every program can take part
MAKE_SECRETS = "k8s/tasks/make-secrets | kubectl create -f -"  # also those of etcd
MAKE_SECRET = 'kubectl create secret generic paddle-secret --from-literal=secret="$(openssl rand -hex 32)"'


@dataclass(frozen=True)
class JobEnvironment:
    """The job and the attempt of a program; the names are empty outside a job."""

    job: str = ""
    attempt: str = ""
    secret: str = ""
    peer_timeout: float = 10.0
    stuck_timeout: float = 1800.0  # seconds without progress after which /healthz reports a program as stuck

    def __repr__(self) -> str:
        return f"JobEnvironment(job={self.job!r}, attempt={self.attempt!r}, peer_timeout={self.peer_timeout!r})"


class HandedSecret:
    """A secret that this process has made, for the programs that it starts inside the `with` block of this object.

    They read it from a file in memory, because everything that a program starts inherits its variables. Only processes
    of this user can open the file, and it ends with the block. A process that is forked meanwhile does not keep it.

    Attributes: variables: what the programs get in their environment.
    """

    def __init__(self, secret: str) -> None:
        self._secret, self._file = secret, -1
        self.variables: Mapping[str, str] = {}

    def __enter__(self) -> HandedSecret:
        self._file = os.memfd_create("paddle-secret")
        _HANDED.add(self._file)
        os.write(self._file, self._secret.encode())
        self.variables = {SECRET: "", SECRET_FILE: f"/proc/{os.getpid()}/fd/{self._file}"}
        return self

    def __exit__(self, *_: object) -> None:
        self.variables = {}
        if self._file in _HANDED:  # not in a forked process
            _HANDED.remove(self._file)
            os.close(self._file)


_HANDED: set[int] = set()  # the open files


def _forget_handed() -> None:
    """Close the files in a process that has been forked from this one."""
    while _HANDED:
        os.close(_HANDED.pop())


os.register_at_fork(after_in_child=_forget_handed)


def read_environment(environ: Mapping[str, str]) -> JobEnvironment:
    """Return the job of this program, from PADDLE_JOB_NAME, PADDLE_ATTEMPT, PADDLE_SECRET(_FILE) and the two timeouts.

    Raises: ConfigError: a timeout is not a number of seconds of at least 0.1, the secret's file is unusable, or it is
        missing without PADDLE_WITHOUT_SECRET=1, or a text is not UTF-8.
    """
    peer_timeout = _read_seconds(environ, "PADDLE_PEER_TIMEOUT", JobEnvironment.peer_timeout, 86400)
    stuck_timeout = _read_seconds(environ, "PADDLE_STUCK_TIMEOUT", JobEnvironment.stuck_timeout, 1000000)
    return JobEnvironment(
        _read_text(environ, "PADDLE_JOB_NAME"),
        _read_text(environ, "PADDLE_ATTEMPT"),
        _read_text(environ, SECRET) or _read_secret(environ),
        peer_timeout,
        stuck_timeout,
    )


def _read_text(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # the value, which may be a secret, is not shown
        raise ConfigError(f"{name} is not UTF-8 text; set it to other text") from exc
    return text


def _read_seconds(environ: Mapping[str, str], name: str, default: float, most: int) -> float:
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= most:
        raise ConfigError(f"{name} is '{text}'; set it to a number of seconds from 0.1 to {most}, e.g. {default:g}")
    return seconds


def find_misspelt(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Return, for each name that looks like a misspelt variable, the known variable that it resembles most."""
    found: dict[str, str] = {}
    for name in names:
        if name not in known and len(name) >= _LEAST_LETTERS:
            swapped = [one for one in known if sorted(one) == sorted(name)]  # for difflib they differ in two letters
            close = swapped or difflib.get_close_matches(name, known, 1, _SIMILARITY)
            found.update((name, one) for one in close[:1])
    return found


def is_without_secret(environ: Mapping[str, str]) -> bool:
    """Return whether the user asks for a job in which every program can take part.

    Raises: ConfigError: the variable is not 0 or 1.
    """
    text = environ.get(WITHOUT_SECRET) or "0"
    if text not in ("0", "1"):
        raise ConfigError(f"{WITHOUT_SECRET} is '{text}'; set it to 1 for a job without a secret, or remove it")
    return text == "1"


def _read_secret(environ: Mapping[str, str]) -> str:
    """Return the content of the secret's file, or "" if no variable names a file.

    A missing file ends the program, because without a secret everyone who reaches a port could take part.
    """
    may_be_missing = is_without_secret(environ)
    name = environ.get(SECRET_FILE, "")
    if not name:
        return ""
    try:
        with open_regular(Path(name)) as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        secret = content.decode().strip()
    except (FileNotFoundError, NotADirectoryError) as exc:
        # the pod always has the variable; the volume of the secret is optional
        if may_be_missing:
            return ""
        command = MAKE_SECRETS if environ.get("PADDLE_ETCD_CA") else MAKE_SECRET
        raise ConfigError(
            f"there is no secret: PADDLE_SECRET_FILE names {name}, which does not exist. In the job's namespace, run "
            f"{command} and create the job again. A job in which every program that reaches a port can take part "
            f"needs {WITHOUT_SECRET}=1 (docs/security.md)"
        ) from exc
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "the file is not UTF-8 text"
        raise ConfigError(f"PADDLE_SECRET_FILE names {name}, which cannot be read: {reason}") from exc
    if not secret or len(content) > MAX_SECRET_BYTES:
        raise ConfigError(
            f"PADDLE_SECRET_FILE names {name}, which holds {'no text' if not secret else 'too much'}; "
            f"put 1 to {MAX_SECRET_BYTES} bytes there, e.g. the output of openssl rand -hex 32, or remove the file"
        )
    return secret
