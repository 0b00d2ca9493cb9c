"""The library that decodes Parquet and Arrow files, an extra of this project."""

from __future__ import annotations

import importlib
from typing import Any

from paddle_base.runtime.errors import ConfigError


def load_pyarrow(part: str = "") -> Any:
    """Return the module pyarrow, or a part of it such as `parquet`. The first import takes 0.1 s.

    Raises: ConfigError: pyarrow is not installed.
    """
    try:
        return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "tables in Parquet and Arrow files need pyarrow: pip install 'paddle-on-kubernetes[parquet]'"
        ) from error
