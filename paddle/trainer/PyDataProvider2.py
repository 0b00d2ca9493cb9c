"""The data provider under its old name; the legacy's module had no export list, so its imports are exported too."""
import collections
import functools
import itertools
import logging
import pickle as cPickle

from trainer.data import provider as _provider
from trainer.data.provider import *  # noqa: F403 - the public names are listed there

__all__ = [*_provider.__all__, "cPickle", "collections", "functools", "itertools", "logging"]
