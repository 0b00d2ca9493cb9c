"""The names that provider modules import; the implementation is trainer/data/provider2.py.

The module of v0.10 had no `__all__`. Providers may therefore also use the modules that the module of v0.10 imported.
This module lists all names one by one, because a type checker cannot read a computed list.
"""

import collections
import functools
import itertools
import logging

from trainer.config.scripts.python2 import cPickle
from trainer.data.provider2 import (
    CacheType,
    CheckInputTypeWrapper,
    CheckWrapper,
    DataType,
    InputOrderWrapper,
    InputType,
    SequenceType,
    SingleSlotWrapper,
    dense_array,
    dense_slot,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    deserialize_args,
    index_slot,
    integer_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    provider,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
    sparse_non_value_slot,
    sparse_value_slot,
)

__all__ = [
    "CacheType",
    "CheckInputTypeWrapper",
    "CheckWrapper",
    "DataType",
    "InputOrderWrapper",
    "InputType",
    "SequenceType",
    "SingleSlotWrapper",
    "cPickle",
    "collections",
    "dense_array",
    "dense_slot",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "deserialize_args",
    "functools",
    "index_slot",
    "integer_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "itertools",
    "logging",
    "provider",
    "sparse_binary_vector",
    "sparse_binary_vector_sequence",
    "sparse_binary_vector_sub_sequence",
    "sparse_float_vector",
    "sparse_float_vector_sequence",
    "sparse_float_vector_sub_sequence",
    "sparse_non_value_slot",
    "sparse_value_slot",
]
