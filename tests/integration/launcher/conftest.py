"""Every test here reads on stdout what the launcher says."""

from launches import api, launch, store
from launching import launcher_log

__all__ = ["api", "launch", "launcher_log", "store"]
