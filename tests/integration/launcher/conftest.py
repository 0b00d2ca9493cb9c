"""Every test here reads on stdout what the launcher says."""

from launching import launcher_log

__all__ = ["launcher_log"]
