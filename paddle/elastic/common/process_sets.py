"""The names of `horovod.common.process_sets`."""

from paddle_cluster.elastic.process.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
