"""Training by all-reduce, with Horovod's API; workers may fail, leave and join meanwhile.

    import paddle.elastic as hvd

    hvd.init()
    gradients = hvd.allreduce(gradients)          # the average of all ranks

    @hvd.elastic.run
    def train(state): ...                         # state.commit() marks a point to resume from

`docs/allreduce.md` shows how to run a first job.
"""

from elastic.errors import CollectiveMismatchError, HorovodInternalError, HostsUpdatedInterrupt
from elastic.process.operations import (
    Average,
    Max,
    Min,
    Sum,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    broadcast_parameters,
    cross_rank,
    cross_size,
    grouped_allreduce,
    init,
    is_initialized,
    local_rank,
    local_size,
    poll,
    rank,
    shutdown,
    size,
    synchronize,
)
from paddle.elastic import elastic

__all__ = [
    "Average",
    "CollectiveMismatchError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "elastic",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]
