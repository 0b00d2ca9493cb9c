"""This package has the names that users write: the `paddle` command, and the modules of old configs and providers.

`trainer` and `pserver` are the implementation; this package contains only names. An import of this package loads no
other module.
"""
