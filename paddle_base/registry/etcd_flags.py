"""The flags by which a program and an etcd prove to each other who they are; each sets the variable of its name.

paddle_base.registry.etcd_access reads the variables, and describes what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from paddle_base.runtime.gflags import Flag, Status

ETCD_FLAGS = (
    Flag("etcd_ca", "", Status.SUPPORTED, "file with the certificate of etcd's authority; empty: PADDLE_ETCD_CA"),
    Flag("etcd_cert", "", Status.SUPPORTED, "file with this program's certificate; empty: PADDLE_ETCD_CERT"),
    Flag("etcd_key", "", Status.SUPPORTED, "file with the key of --etcd_cert; empty: PADDLE_ETCD_KEY"),
    Flag("etcd_user", "", Status.SUPPORTED, "name of a user of etcd; empty: PADDLE_ETCD_USER"),
    Flag("etcd_password_file", "", Status.SUPPORTED, "file with the user's password; empty: PADDLE_ETCD_PASSWORD_FILE"),
)


def set_variables(value: Callable[[str], str], environ: MutableMapping[str, str]) -> None:
    """Set the variable of each flag that is given, so that the flag has precedence.

    Args: value: returns the value of a flag, or "".
    """
    for flag in ETCD_FLAGS:
        if text := value(flag.name):
            environ[f"PADDLE_{flag.name.upper()}"] = text
