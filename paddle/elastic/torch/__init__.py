"""Training of PyTorch models by all-reduce, with the API of `horovod.torch`.

    import paddle.elastic.torch as hvd        # in place of horovod.torch

    hvd.init()
    average = hvd.allreduce(torch.ones(3), name="ones")

`docs/worker-script.md` shows how to run a script. PyTorch comes with the extra `torch`.
"""

try:
    import torch as _torch
except ModuleNotFoundError as exc:
    if exc.name != "torch":
        raise
    raise ImportError("paddle.elastic.torch needs torch: pip install '.[torch]' in the project's directory") from exc

from paddle.elastic.torch import elastic as elastic
from paddle.elastic.torch.compression import *
from paddle.elastic.torch.functions import *
from paddle.elastic.torch.mpi_ops import *
from paddle.elastic.torch.optimizer import *
from paddle.elastic.torch.sync_batch_norm import *
from paddle_cluster.elastic.errors import CollectiveMismatchError as CollectiveMismatchError
from paddle_cluster.elastic.errors import HorovodInternalError as HorovodInternalError
from paddle_cluster.elastic.errors import HostsUpdatedInterrupt as HostsUpdatedInterrupt
