"""This package has the names that users write: the `paddle` command, and the modules of old configs and providers.

`trainer` and `pserver` are the implementation; this package contains only names. An import of this package loads only
the table of the modules that v0.10 had and this project has not.
"""

from paddle.older_modules import install

install()
