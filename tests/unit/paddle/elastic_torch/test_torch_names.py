"""The names of horovod.torch 0.28.1 with their arguments and defaults, and the table of docs/horovod.md."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

import paddle.elastic.torch as hvd

PAGE = Path(__file__).parents[4] / "docs/horovod.md"
# by `inspect` of Horovod 0.28.1; `ps` stands for process_set=global_process_set (spec/elastic.md, 6.1)
SIGNATURES = """
DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1, op=0, \
gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=0, ps)
allgather(tensor, name=None, ps)
allgather_async(tensor, name=None, ps)
allgather_object(obj, name=None)
allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, \
postscale_factor=1.0, ps)
allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
alltoall(tensor, splits=None, name=None, ps)
alltoall_async(tensor, splits=None, name=None, ps)
barrier(ps)
broadcast(tensor, root_rank, name=None, ps)
broadcast_(tensor, root_rank, name=None, ps)
broadcast_async(tensor, root_rank, name=None, ps)
broadcast_async_(tensor, root_rank, name=None, ps)
broadcast_object(obj, root_rank=0, name=None, ps)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_parameters(params, root_rank)
ccl_built()
cross_rank()
cross_size()
cuda_built()
ddl_built()
gloo_built()
gloo_enabled()
grouped_allgather(tensors, name=None, ps)
grouped_allgather_async(tensors, name=None, ps)
grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, \
postscale_factor=1.0, ps)
grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, ps)
grouped_reducescatter(tensors, name=None, compression=Compression.none, op=0, ps, prescale_factor=1.0, \
postscale_factor=1.0)
grouped_reducescatter_async(tensors, name=None, op=0, ps, prescale_factor=1.0, postscale_factor=1.0)
init(comm=None, process_sets=None)
is_initialized()
join(device=-1)
local_rank()
local_size()
mpi_built()
mpi_enabled()
mpi_threads_supported()
nccl_built()
poll(handle)
rank()
reducescatter(tensor, name=None, compression=Compression.none, op=0, ps, prescale_factor=1.0, postscale_factor=1.0)
reducescatter_async(tensor, name=None, op=0, ps, prescale_factor=1.0, postscale_factor=1.0)
rocm_built()
shutdown()
size()
sparse_allreduce_async(tensor, name, op, ps)
start_timeline(file_path, mark_cycles=False)
stop_timeline()
synchronize(handle)
"""
CLASSES = """
ProcessSet(ranks)
SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None)
"""  # device and dtype are of torch's
OTHERS = ["Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "Product", "Sum"]
OTHERS += ["add_process_set", "elastic", "global_process_set", "remove_process_set"]
# below paddle.elastic, as they stand below horovod -> some names that scripts take from them
MODULES = {
    "torch.compression": "Compression",
    "torch.elastic": "ElasticSampler TorchState run",
    "torch.elastic.sampler": "ElasticSampler",
    "torch.elastic.state": "TorchState ModelStateHandler OptimizerStateHandler SamplerStateHandler StateHandler "
    "get_handler_registry set_handler_registry",
    "torch.functions": "allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters",
    "torch.mpi_ops": "Adasum Average Sum allreduce_async_ init join rank synchronize",
    "torch.optimizer": "DistributedOptimizer",
    "torch.sync_batch_norm": "SyncBatchNorm",
    "common.exceptions": "HorovodInternalError HostsUpdatedInterrupt",
    "common.process_sets": "ProcessSet add_process_set global_process_set remove_process_set",
    "common.util": "gloo_built mpi_built",
}


def signature(name: str) -> str:
    """The arguments of a name of ours as SIGNATURES writes them; what only ours has is by keyword."""
    texts = []
    for one in inspect.signature(getattr(hvd, name)).parameters.values():
        if one.kind is one.KEYWORD_ONLY or one.name == "verbose":  # of horovod.common.util's functions
            continue
        default: Any = one.default
        if one.name == "process_set" and default is hvd.global_process_set:
            texts.append("ps")
        elif default is one.empty:
            texts.append(one.name)
        elif default is hvd.Compression.none:
            texts.append(f"{one.name}=Compression.none")
        else:
            texts.append(f"{one.name}={default if not isinstance(default, int) else int(default)}")
    return f"{name}({', '.join(texts)})"


def test_functions_and_classes_have_the_arguments_of_horovod() -> None:
    wanted = (SIGNATURES + CLASSES).replace("affine=True, track_running_stats=True", "affine=1, track_running_stats=1")
    lines = [line.replace("=False", "=0") for line in wanted.split("\n") if line]
    assert [signature(line.partition("(")[0]) for line in lines] == lines


def test_every_name_stands_in_the_table_of_the_page() -> None:
    section = PAGE.read_text().partition("\n## Horovod's names\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Za-z_]+)`", section))
    names = [line.partition("(")[0] for line in (SIGNATURES + CLASSES).split("\n") if line] + OTHERS
    assert [name for name in names if name not in named or not hasattr(hvd, name)] == []


def test_scripts_find_the_modules_of_horovod() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in MODULES.items()
        for name in names.split()
        if not hasattr(import_module(f"paddle.elastic.{module}"), name)
    ]
    assert missing == []
