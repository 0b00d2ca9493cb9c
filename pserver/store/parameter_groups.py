"""The groups of a shard: the elements that are updated together, and the effective settings of each group. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim.method import Hyperparameters, Method
from pserver.optim.methods import ALL_METHODS
from pserver.optim.settings import Optimization, ParameterSpec, Rows
from pserver.optim.weight_decay import Decay, separate_decay
from pserver.store.partition import Range

ROW_COST = 32  # number of elements that can be updated in the time that finding a row takes
SCATTER_COST = 2  # time for an element of a scattered row, relative to an element of a contiguous range
MIN_LAZY_ELEMENTS = 1 << 14  # minimum size of a parameter with lazy rows; smaller parameters are updated as a whole


@dataclass(frozen=True)
class GroupSettings:
    """The settings that neighboring elements of the flat vector must share to be updated as one group.

    `clip` is the maximum magnitude of a gradient's element; 0: no limit. `decay` is applied separately from the step.
    `row_width` and `name` are set if rows can take separate steps; such a group is one parameter. If
    `hyperparameters.is_sparse`, rows that a batch does not touch skip the step. Without `is_sparse`, such rows are
    lazy: a step without gradient, momentum and decay changes only their state, and this change is computed later.
    """

    hyperparameters: Hyperparameters
    clip: float = 0.0
    decay: Decay | None = None
    row_width: int = 0
    name: str = ""


@dataclass
class ParameterGroup:
    """The elements [start, stop) of the flat vector, with one method for them.

    `parameter` is the number of the group's first parameter. `first_row` is the position of the group's rows in the
    shard's row clocks (arrays with the number of the last step of each row). `decayed` is the batch of the pass up to
    which the whole group has decayed. `settled` is the step up to which every row is up to date.
    """

    start: int
    stop: int
    settings: GroupSettings
    method: Method
    parameter: int = 0
    first_row: int = 0
    decayed: int = 0
    settled: int = 0

    @property
    def is_sparse(self) -> bool:
        """Whether rows that a batch does not touch skip the step."""
        return self.settings.hyperparameters.is_sparse

    @property
    def rows(self) -> int:
        """The number of rows that can take separate steps."""
        return (self.stop - self.start) // self.settings.row_width if self.settings.row_width else 0

    def saves_time(self, rows: Rows) -> bool:
        """Return whether a step of only these rows is faster than a step of the whole group."""
        return SCATTER_COST * rows.size * (self.settings.row_width + ROW_COST) < self.stop - self.start


def find_parameter_groups(
    parameters: Sequence[ParameterSpec],
    ranges: Sequence[Range],
    optimization: Optimization,
    *,
    per_parameter: bool,
    named: bool = False,
) -> list[ParameterGroup]:
    """Return the groups of a dense shard, in the order of the flat vector.

    Args: per_parameter: see `DenseShard`. named: whether parameters with clipping stay separate groups, so that the log
        can name them.
    Raises: ConfigError: the settings of a parameter are inconsistent, or the method does not support them.
    """
    groups: list[ParameterGroup] = []
    at = row = 0
    for index, start, stop in ranges:
        p = parameters[index]
        settings = _choose_settings(p, optimization, per_parameter=per_parameter, named=named)
        # blocks may end inside a row; only a parameter that is whole on this service surely has whole rows
        if not settings.row_width and stop - start == p.size and _can_be_lazy(p, optimization, settings):
            settings = replace(settings, row_width=p.row_width, name=p.name)
        last = groups[-1] if groups else None
        # one update of a long group is faster than many short ones; a group with rows keeps its own row clocks
        if last and last.settings == settings and not settings.row_width:
            last.stop = at + stop - start
        else:
            method = ALL_METHODS[optimization.learning_method](optimization, settings.hyperparameters)
            groups.append(ParameterGroup(at, at + stop - start, settings, method, index, row))
            row += groups[-1].rows
        at = groups[-1].stop
    return groups


def _can_be_lazy(p: ParameterSpec, optimization: Optimization, settings: GroupSettings) -> bool:
    """Return whether rows without gradient may skip a step."""
    return (
        ALL_METHODS[optimization.learning_method].allows_lazy_rows
        and p.size >= MIN_LAZY_ELEMENTS
        and 0 < p.row_width < p.size
        and p.size % p.row_width == 0
        and not (settings.hyperparameters.momentum or settings.hyperparameters.decay or settings.decay)
        and not optimization.average_window
    )


def _choose_settings(
    p: ParameterSpec, optimization: Optimization, *, per_parameter: bool, named: bool
) -> GroupSettings:
    """Return the effective settings of a parameter."""
    if not per_parameter:
        return GroupSettings(Hyperparameters(p.learning_rate, p.momentum, p.decay_rate))
    decay = separate_decay(p, always=ALL_METHODS[optimization.learning_method].separates_decay)
    if p.sparse_update:
        _check_rows(p, optimization)
    clip = p.gradient_clipping_threshold
    return GroupSettings(
        Hyperparameters(p.learning_rate, p.momentum, p.decay_rate if decay is None else 0.0, p.sparse_update),
        clip,
        decay,
        p.row_width if p.sparse_update else 0,
        p.name if p.sparse_update or (named and clip) else "",
    )


def check_momentum(p: ParameterSpec, optimization: Optimization) -> None:
    """Check that sparse_momentum is not used with zero momentum.

    Raises: ConfigError: the method would divide by zero momentum.
    """
    if optimization.learning_method == "sparse_momentum" and not p.momentum:
        raise ConfigError(
            f"parameter {p.name} has sparse_update and momentum 0, by which sparse_momentum divides; "
            "use MomentumOptimizer(momentum=...) without sparse=True"
        )


def _check_rows(p: ParameterSpec, optimization: Optimization) -> None:
    name = optimization.learning_method
    if not ALL_METHODS[name].allows_sparse:
        raise ConfigError(
            f"parameter {p.name} has sparse_update, which {name} cannot do; leave sparse_update out of its ParamAttr, "
            "or take another learning_method"
        )
    check_momentum(p, optimization)
    if p.row_width < 1 or p.size % p.row_width:
        raise BugError(f"parameter {p.name}: its {p.size} elements do not form rows of {p.row_width} elements")
