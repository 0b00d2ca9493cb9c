"""The names that users type: the `paddle` command, and the modules that old configs and providers import.

`trainer` and `pserver` are the implementation; this package contains only names. An import of this package loads no
other module.
"""
