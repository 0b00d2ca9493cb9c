"""Reads the files of a service account."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.regular_files import open_regular

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where Kubernetes mounts the files
TOKEN_LIMIT = 64 << 10  # maximum bytes of a file of the service account; a token has about 1,000 bytes


def read_text(path: Path) -> str | None:
    """Return the stripped text of a file of the service account, or None if it does not exist or is empty.

    Raises: ConfigError: the file cannot be read, or is not a single word. The error does not contain the file's text.
    """
    try:
        with open_regular(path) as file:
            content = file.read(TOKEN_LIMIT + 1)
        if len(content) > TOKEN_LIMIT:
            raise ValueError(f"the file has more than {TOKEN_LIMIT} bytes")
        if not content.isascii():
            raise ValueError("the file is no ASCII text")
        text = content.decode().strip()
        if text and not re.fullmatch(r"[!-~]+", text):
            raise ValueError("the file has a blank, a line break or a control character inside")
        return text or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise ConfigError(
            f"uid {os.getuid()} cannot read {path} of its service account: {why}; mount the file that Kubernetes makes"
        ) from None
