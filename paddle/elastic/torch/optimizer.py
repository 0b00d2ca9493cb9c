"""`DistributedOptimizer`: an optimizer of torch whose gradients are averaged over all ranks before each step."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from paddle.elastic.torch import adasum
from paddle.elastic.torch.compression import Compression
from paddle.elastic.torch.gradients import GradientExchange, Groups, ReductionPlan
from paddle.elastic.torch.mpi_ops import Adasum, Average
from paddle_cluster.elastic.collectives.requests import check_name
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer"]

Closure = Callable[[], Any]


class ExchangingOptimizer:
    """What `DistributedOptimizer` adds to the class of the wrapped optimizer."""

    param_groups: list[dict[str, Any]]
    _exchange: GradientExchange
    _parameter_names: dict[torch.Tensor, str]
    _wrapped_class: type[torch.optim.Optimizer]
    _is_synchronized = False
    _synchronizes = True

    # ----- Horovod's methods -----

    def synchronize(self) -> None:
        """Wait until the gradients of all ranks are reduced; a step after it belongs under `skip_synchronize`."""
        if self._takes_part():
            self._exchange.finish()
        self._is_synchronized = True

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a step uses the gradients as they are, because `synchronize` has reduced them."""
        return self._skipping()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes after which gradients are sent."""
        self._exchange.plan = self._exchange.plan._replace(passes=_check_passes(passes))
        self._exchange.reset()

    # ----- The optimizer's methods -----

    def step(self, closure: Closure | None = None) -> Any:
        """Reduce the gradients, and let the wrapped optimizer take its step.

        Args: closure: computes the loss and its gradients; they are reduced each time that the optimizer calls it.
        Raises: HorovodInternalError: a rank is lost.
        """
        if self._synchronizes and not self._is_synchronized:
            return self._step_together(closure)
        if self._synchronizes:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() "
                "context if you use optimizer.synchronize() in your code.",
                stacklevel=2,
            )
        self._is_synchronized = False
        return self.step_alone(closure)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Forget the gradients; see torch.optim.Optimizer.zero_grad.

        Raises: AssertionError: gradients are on their way to other ranks.
        """
        if self._exchange.has_begun:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load a state; gradients that are on their way are forgotten, because the state is that of another step."""
        self._exchange.reset()
        self._is_synchronized = False
        super().load_state_dict(*args, **kwargs)  # type: ignore[misc]

    # ----- Parts of a step -----

    @contextlib.contextmanager
    def _skipping(self) -> Iterator[None]:
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True

    def _takes_part(self) -> bool:
        """Whether this rank exchanges gradients with others, or may do so later in an elastic job.

        Raises: ConfigError: `hvd.init` was not called.  ValueError: the process set is not registered.
        """
        process_set = self._exchange.plan.process_set
        is_member = process_set.included()
        if is_member is False:
            return False
        # the group comes last, because a newcomer that asks for it joins the job
        return (is_member is True and WORKER.settings.is_elastic) or process_set.group.size > 1

    def step_alone(self, closure: Closure | None = None) -> Any:
        """Let the wrapped optimizer take its step with the gradients as they are."""
        step = super().step  # type: ignore[misc]
        return step() if closure is None else step(closure)

    def _step_together(self, closure: Closure | None) -> Any:
        if closure is None or self._exchange.has_begun:
            self._reduce()
        if closure is None:
            return self.step_alone()

        def compute() -> Any:
            loss = closure()
            self._reduce()
            return loss

        return self.step_alone(compute)

    def _reduce(self) -> None:
        if self._takes_part():
            self._exchange.finish()

    def _name_parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return the parameters with their names; parameters that were added later get names here."""
        named = list(_number_parameters(self))
        return [(self._parameter_names.setdefault(one, name), one) for name, one in named]


# torch wraps a class's step in the hooks of steps, but the step of the wrapped optimizer runs them already
ExchangingOptimizer.step.hooked = True  # type: ignore[attr-defined]


class AdasumOptimizer(ExchangingOptimizer):
    """The optimizer for op=Adasum: each rank takes its own step, and the ranks add their steps by Adasum."""

    def synchronize(self) -> None:
        """Do nothing: the steps, not the gradients, are reduced."""

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """Raises: AssertionError: always."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def _step_together(self, closure: Closure | None) -> Any:
        if not self._takes_part():
            return self.step_alone(closure)
        plan = self._exchange.plan
        parameters = [one for _, one in self._name_parameters() if one.requires_grad or one.grad is not None]
        before = [one.detach().clone() for one in parameters]
        loss = self.step_alone(closure)
        self._exchange.reset()
        steps = [
            plan.compression.compress((one.detach() - old).contiguous())
            for one, old in zip(parameters, before, strict=True)
        ]
        adasum.reduce_([step for step, _ in steps], plan.process_set)
        with torch.no_grad():
            for one, old, (step, context) in zip(parameters, before, steps, strict=True):
                one.copy_(old.add_(plan.compression.decompress(step, context)))
        return loss


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer of the same class that reduces the gradients of all ranks before each step.

    The result shares the parameters, options and state of the given optimizer, which the script does not use further.

    Args: named_parameters: `model.named_parameters()`; the names find the same parameter on all ranks.  compression:
        type of the gradients on their way.  backward_passes_per_step: number of backward passes whose gradients are
        added before they are sent.  op: Average, Sum or Adasum.  gradient_predivide_factor: an average divides by this
        factor before the sum, and by the rest after it.  num_groups: older form of `groups`.  groups: number of
        groups, or lists of parameters; the gradients of a group are sent together.  sparse_as_dense: send sparse
        gradients as dense ones.  process_set: ranks among which gradients are reduced.
    Raises: ValueError: an argument is wrong.  ConfigError: `hvd.init` was not called.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if not gradient_predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor}; it must be > 0")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed.",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    plan = ReductionPlan(
        int(op),
        compression,
        _check_passes(backward_passes_per_step),
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    )
    return _wrap(optimizer, named_parameters, plan, _read_groups(groups))


def _wrap(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    plan: ReductionPlan,
    groups: Groups | None,
) -> Any:
    wrapped = type(optimizer)
    if isinstance(optimizer, ExchangingOptimizer):  # its hooks would send the gradients a second time
        optimizer._exchange.detach()
        wrapped = optimizer._wrapped_class
    names = _read_names(named_parameters, optimizer)
    mixin = AdasumOptimizer if plan.op == Adasum else ExchangingOptimizer
    new_class: Any = type(
        wrapped.__name__, (mixin, wrapped), {"__module__": wrapped.__module__, "__doc__": wrapped.__doc__}
    )
    result = new_class.__new__(new_class)
    # `step` and `zero_grad` of the instance are a scheduler's, and would call the methods of the wrapped optimizer
    own = {name: value for name, value in vars(optimizer).items() if name not in ("step", "zero_grad")}
    vars(result).update(own, _wrapped_class=wrapped, _parameter_names=names)
    reference = weakref.ref(result)  # a cycle would keep the hooks of an optimizer that the script has dropped

    def list_parameters() -> list[tuple[str, torch.Tensor]]:
        living = reference()
        return [] if living is None else living._name_parameters()

    result._exchange = GradientExchange(list_parameters, plan, groups, has_hooks=False)
    if plan.op != Adasum and result._takes_part():
        result._exchange = GradientExchange(list_parameters, plan, groups, has_hooks=True)
    return result


def _number_parameters(optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for group_number, group in enumerate(optimizer.param_groups):
        for number, parameter in enumerate(group["params"]):
            yield f"allreduce.noname.{group_number}.{number}", parameter


def _read_names(named: Iterable[tuple[str, torch.Tensor]] | None, optimizer: Any) -> dict[torch.Tensor, str]:
    """Return the names of the optimizer's parameters.

    Raises: ValueError: the names are no pairs, or some are equal, too long or missing.
    """
    pairs: list[Any] = list(_number_parameters(optimizer) if named is None else named)
    if any(not isinstance(one, tuple) or len(one) != 2 for one in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    duplicates = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    for name, _ in pairs:
        check_name(f"gradients.{name}")
    names = {parameter: name for name, parameter in pairs}
    missing = [name for name, parameter in _number_parameters(optimizer) if parameter not in names]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. They are, by group and "
            f"number: {', '.join(name.removeprefix('allreduce.noname.') for name in missing[:16])}"
        )
    return names


def _read_groups(groups: Groups | None) -> Groups | None:
    """Return the groups of an optimizer. Raises: ValueError: they are neither a number nor lists of parameters."""
    if groups is None or (isinstance(groups, int) and groups > 0):
        return groups
    if not isinstance(groups, list) or not all(isinstance(one, list | tuple) for one in groups):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    members = [one for group in groups for one in group]
    if not all(isinstance(one, torch.Tensor) for one in members):
        raise ValueError("groups must consist of torch.Tensor.")
    if len(set(members)) < len(members):
        raise ValueError("A parameter can only appear once in groups.")
    return groups


def _check_passes(passes: int) -> int:
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    return passes
