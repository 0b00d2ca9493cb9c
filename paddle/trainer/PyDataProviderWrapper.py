"""The names that provider modules of data of type `py` import; the implementation is trainer/data/older/wrapper.py."""

from trainer.data.older.wrapper import (
    DenseSlot,
    GeneralPyDataProvider,
    IndexSlot,
    PoolSize,
    SlotType,
    SparseNonValueSlot,
    SparseValueSlot,
    StringSlot,
    default_init_hook,
    init_hook_wrapper,
    provider,
)

__all__ = [
    "DenseSlot",
    "GeneralPyDataProvider",
    "IndexSlot",
    "PoolSize",
    "SlotType",
    "SparseNonValueSlot",
    "SparseValueSlot",
    "StringSlot",
    "default_init_hook",
    "init_hook_wrapper",
    "provider",
]
