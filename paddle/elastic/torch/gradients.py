"""Sends the gradients of an optimizer's parameters to the other ranks while backward runs.

Each parameter has a hook, which runs as soon as backward has written the gradient. The hook starts an all-reduce in
place and returns at once, so that backward goes on during the exchange. `GradientExchange.finish` waits for the
results.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from paddle.elastic.torch import mpi_ops
from paddle.elastic.torch.asynchronous import Adasum
from paddle.elastic.torch.compression import is_conversion, wire_type_of
from paddle.elastic.torch.tensors import read_tensor, write_tensor
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.process.operations import allgather_object
from paddle_cluster.elastic.process.pending import submit, submit_group
from paddle_cluster.elastic.process.process_sets import ProcessSet

Groups = int | Sequence[Sequence[torch.Tensor]]
NamedParameters = Iterable[tuple[str, torch.Tensor]]


class ReductionPlan(NamedTuple):
    """How gradients are reduced.

    Attributes: passes: number of backward passes after which a gradient is sent.  predivide: gradients are divided by
        this factor before they are added, and an average multiplies the result by it again.
    """

    op: int
    compression: Any
    passes: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of each all-reduce of compressed tensors."""
        factors = {"prescale_factor": 1.0 / self.predivide, "postscale_factor": self.predivide}
        return {"op": self.op, "process_set": self.process_set, **factors}

    @property
    def options(self) -> dict[str, Any] | None:
        """The options of each all-reduce in which the collectives convert the gradients.

        None: what is to be done is no conversion, or no all-reduce.
        """
        if self.op == Adasum or not is_conversion(self.compression):
            return None
        factors = {"prescale": 1.0 / self.predivide, "postscale": self.predivide}
        return {"argument": Reduction(self.op), "wire": wire_type_of(self.compression), **factors}


class _Sent(NamedTuple):
    """Gradients that are on their way; they have one request, or one of a group.

    Attributes: contexts: what the compression needs to restore each tensor, or None.  wait: returns the results, in the
        gradients themselves or in compressed or contiguous copies.
    """

    parameters: Sequence[torch.Tensor]
    contexts: Sequence[Any]
    wait: Callable[[], Sequence[torch.Tensor]]


class _Round:
    """The gradients from the first backward pass to the end of their exchange.

    Args: group: the ranks that take part.  groups: parameters whose gradients are sent together.
    Attributes: passes: number of backward passes of each parameter.
    """

    def __init__(self, group: RankGroup | None = None, groups: Sequence[Sequence[torch.Tensor]] = ()) -> None:
        self.group = group
        self.groups = groups
        self.group_of = {parameter: number for number, members in enumerate(groups) for parameter in members}
        self.passes: dict[torch.Tensor, int] = {}
        self.sent: list[_Sent] = []
        self.is_sent: set[torch.Tensor] = set()
        self._missing = [set(members) for members in groups]

    def complete(self, parameter: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the parameters whose gradients can be sent now that this one's is there."""
        number = self.group_of.get(parameter)
        if number is None:
            return [parameter]
        self._missing[number].discard(parameter)
        return () if self._missing[number] else self.groups[number]

    def again(self) -> _Round:
        """Return the next round among the same ranks."""
        return _Round(self.group, self.groups)


class GradientExchange:
    """The gradients of an optimizer, from backward to its step.

    Args: list_parameters: returns the present parameters of the optimizer with their names, in the optimizer's order.
        groups: number of groups, or the parameters of each group; the gradients of a group are sent together.
        has_hooks: whether gradients are sent during backward.
    """

    def __init__(
        self,
        list_parameters: Callable[[], NamedParameters],
        plan: ReductionPlan,
        groups: Groups | None,
        *,
        has_hooks: bool,
    ) -> None:
        self.plan = plan
        self._options = plan.options
        self._list_parameters = list_parameters
        self._groups = groups
        self._names: dict[torch.Tensor, str] = {}
        self._hooks: dict[torch.Tensor, _Hook] = {}
        self._round = _Round()
        self._sparse: dict[torch.Tensor, torch.Tensor] = {}  # empty gradients of parameters that have had a sparse one
        if has_hooks:
            self._register()

    @property
    def has_begun(self) -> bool:
        """Whether a backward pass has run since the last exchange, in this generation."""
        return bool(self._round.passes) and self._round.group is self.plan.process_set.group

    def detach(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def reset(self) -> None:
        """Forget the gradients that are on their way, after a failure."""
        self._round = _Round()

    def _register(self) -> None:
        """Give a hook to each parameter that requires a gradient and has no hook yet.

        A script may add parameters, and may let a parameter require a gradient later.
        """
        self._names = {parameter: name for name, parameter in self._list_parameters()}
        for parameter in self._names:
            if parameter.requires_grad and parameter not in self._hooks:
                self._hooks[parameter] = _Hook(parameter, self)

    # ----- During backward -----

    def take(self, parameter: torch.Tensor) -> None:
        """Count a backward pass of a parameter, and send its gradient after the last pass.

        Raises: AssertionError: the gradient has been sent already.
        """
        current = self._begin()
        passes = current.passes.get(parameter, 0) + 1
        if passes > self.plan.passes:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )
        current.passes[parameter] = passes
        if passes == self.plan.passes and (ready := current.complete(parameter)):
            self._send(current, ready)

    def _begin(self) -> _Round:
        """Return this round; begin a new one if the ranks have changed, because nobody answers in the old group."""
        group = self.plan.process_set.group
        if self._round.group is not group:
            self._round = _Round(group, self._arrange())
        return self._round

    def _arrange(self) -> list[list[torch.Tensor]]:
        """Return the parameters of each group, which are the same on all ranks.

        Raises: ValueError: the ranks have different names of parameters.
        """
        if not self._groups:
            return []
        of_name = {name: one for one, name in self._names.items() if one in self._hooks}
        if not isinstance(self._groups, int):
            groups = [[one for one in members if one in self._hooks] for members in self._groups]
            return [sorted(members, key=self._names.__getitem__) for members in groups if members]
        # the order of the parameters may differ among ranks, so that the first rank's order counts
        every = allgather_object(list(of_name), "gradients.order", process_set=self.plan.process_set)
        order = every[0]
        if any(set(names) != set(order) for names in every):
            different = ", ".join(sorted(set().union(*(set(order) ^ set(names) for names in every)))[:8])
            raise ValueError(f"the ranks have different parameters: only some of them have {different}")
        per_group, more = divmod(len(order), self._groups)
        ends = [(number + 1) * per_group + min(number + 1, more) for number in range(self._groups)]
        groups = [[of_name[name] for name in order[begin:end]] for begin, end in zip([0, *ends], ends, strict=False)]
        return [members for members in groups if members]

    def _send(self, current: _Round, parameters: Sequence[torch.Tensor]) -> None:
        """Start the exchange of gradients; a parameter without a gradient sends zeros."""
        current.is_sent.update(parameters)
        for one in parameters:
            self._prepare(one)
        dense = [one for one in parameters if not _grad(one).is_sparse]
        if len(dense) < len(parameters):
            current.sent.extend(self._send_sparse(one) for one in parameters if _grad(one).is_sparse)
        if dense:
            current.sent.append(self._send_compressed(dense) if self._options is None else self._send_arrays(dense))

    def _send_sparse(self, parameter: torch.Tensor) -> _Sent:
        name, plan = f"gradient.{self._names[parameter]}", self.plan
        wait = mpi_ops.sparse_allreduce_async(_grad(parameter), name, plan.op, plan.process_set)
        return _Sent([parameter], [None], lambda: [wait()])

    def _send_arrays(self, parameters: Sequence[torch.Tensor]) -> _Sent:
        """Send gradients from their own memory, which receives the results; the collectives convert the numbers."""
        gradients = [_grad(one).contiguous() for one in parameters]
        arrays, name = [read_tensor(one) for one in gradients], self._names[parameters[0]]
        kind, process_set, options = CollectiveKind.ALLREDUCE, self.plan.process_set, self._options or {}
        if len(arrays) == 1:
            pending = submit(kind, arrays[0], process_set, f"gradient.{name}", target=arrays[0], **options)
        else:
            pending = submit_group(kind, arrays, process_set, f"gradients.{name}", targets=arrays, **options)

        def wait() -> list[torch.Tensor]:
            results = pending.wait_for_arrays()
            return [write_tensor(result, own) for result, own in zip(results, gradients, strict=True)]

        return _Sent(parameters, [None] * len(parameters), wait)

    def _send_compressed(self, parameters: Sequence[torch.Tensor]) -> _Sent:
        pairs = [self.plan.compression.compress(_grad(one).detach().contiguous()) for one in parameters]
        wires, contexts = [wire for wire, _ in pairs], [context for _, context in pairs]
        name = self._names[parameters[0]]
        if len(parameters) == 1:
            handle = mpi_ops.allreduce_async_(wires[0], name=f"gradient.{name}", **self.plan.arguments)
            return _Sent(parameters, contexts, lambda: [mpi_ops.synchronize(handle)])
        handle = mpi_ops.grouped_allreduce_async_(wires, name=f"gradients.{name}", **self.plan.arguments)
        return _Sent(parameters, contexts, lambda: mpi_ops.synchronize(handle))

    def _prepare(self, parameter: torch.Tensor) -> None:
        """Give a gradient the layout that it has on the other ranks."""
        if parameter.grad is None:
            empty = self._sparse.get(parameter)
            parameter.grad = torch.zeros_like(parameter) if empty is None else empty.clone()
        elif parameter.grad.is_sparse:
            if self.plan.sparse_as_dense:
                parameter.grad = parameter.grad.to_dense()
            elif parameter not in self._sparse:
                self._sparse[parameter] = make_empty(parameter.grad)

    # ----- At the step -----

    def finish(self) -> None:
        """Send the gradients that backward has not sent, wait for all gradients, and write the results into them.

        A parameter that requires a gradient and has none sends zeros, because it may have one on another rank.

        Raises: HorovodInternalError: a rank is lost.  CollectiveMismatchError: the ranks have sent different gradients.
        """
        self._register()
        current = self._begin()
        for members in current.groups:
            if not current.is_sent.issuperset(members):
                self._send(current, members)
        for one in self._names:
            if one not in current.is_sent and (one.requires_grad or one.grad is not None):
                self._send(current, [one])
        failure: Exception | None = None
        self._round = current.again()
        for sent in current.sent:  # of all, even after an error, so that nothing writes into a gradient later
            try:
                results = sent.wait()
            except Exception as exc:
                failure = failure or exc
                continue
            for parameter, result, context in zip(sent.parameters, results, sent.contexts, strict=True):
                self._store(parameter, result, context)
        if failure is not None:
            raise failure

    def _store(self, parameter: torch.Tensor, result: torch.Tensor, context: Any) -> None:
        if result.is_sparse:
            parameter.grad = result
            return
        restored = result if self._options is not None else self.plan.compression.decompress(result, context)
        gradient = _grad(parameter)
        if restored.data_ptr() != gradient.data_ptr() or restored.numel() == 0:
            with torch.no_grad():
                gradient.copy_(restored)


def make_empty(sparse: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor of the same shape without elements."""
    indices = torch.empty((sparse.sparse_dim(), 0), dtype=torch.int64, device=sparse.device)
    values = torch.empty((0, *sparse.shape[sparse.sparse_dim() :]), dtype=sparse.dtype, device=sparse.device)
    return torch.sparse_coo_tensor(indices, values, sparse.shape, check_invariants=False)


def _grad(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


class _Hook:
    """Calls an exchange when backward has written the gradient of a parameter, as long as the exchange lives.

    A script that makes a new optimizer for the same model drops the old one, whose hooks must not send gradients, too.
    """

    def __init__(self, parameter: torch.Tensor, exchange: GradientExchange) -> None:
        reference, place = weakref.ref(exchange), weakref.ref(parameter)

        def run(*_: object) -> None:
            living, found = reference(), place()
            if living is not None and found is not None:
                living.take(found)

        self._node: Any = None
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._handle = parameter.register_post_accumulate_grad_hook(run)
        else:  # torch before version 2.1: the node that accumulates the gradient, which lives as long as this reference
            self._node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self._handle = self._node.register_hook(run)

    def remove(self) -> None:
        """Remove the hook."""
        self._handle.remove()
        self._node = None
