"""The names that provider modules import as paddle.trainer.PyDataProvider2.

The legacy's module had no export list, so providers may also use the modules that it imported.
"""

import collections
import functools
import itertools
import logging

from trainer.config.scripts.python2 import cPickle
from trainer.data import provider2
from trainer.data.provider2 import *  # noqa: F403 - the names are listed there

__all__ = [*provider2.__all__, "cPickle", "collections", "functools", "itertools", "logging"]
