"""Which stretches of a shard take their steps as one, and which of the parameters' settings count there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pserver.blocks import Range
from pserver.errors import BugError, ConfigError
from pserver.methods import ALL_METHODS
from pserver.methods.base import Method, Traits
from pserver.regularization import Decay, separate_decay
from pserver.rules import Optimization, ParameterSpec, Rows

ROW_COST = 32  # elements that could be updated in the time that it takes to find a row
SCATTER_COST = 2  # how much longer an element takes in rows here and there than in a stretch
LEAST_RESTING = 1 << 14  # elements of a parameter whose rows may rest; smaller ones are updated together


@dataclass(frozen=True)
class Settings:
    """What neighbours must have in common to take their steps as one stretch.

    `row_width` is not 0, and `name` set, where rows can take steps of their own: such a stretch is one parameter. The
    rows that a batch does not touch wait (`traits.is_sparse`), or they rest: without gradient, momentum and decay a
    step would change only their state, and that is made up for later.
    """

    traits: Traits
    clip: float = 0.0
    decay: Decay | None = None
    row_width: int = 0
    name: str = ""


@dataclass
class Segment:
    """A stretch of the flat vector, [start, stop), with one method for it.

    `parameter` is the number of its (first) parameter, `first_row` the place of its rows in the shard's row clocks,
    `decayed` the batch of the pass up to which the whole stretch has been pulled to zero, `settled` the step up to
    which no row rests.
    """

    start: int
    stop: int
    settings: Settings
    method: Method
    parameter: int = 0
    first_row: int = 0
    decayed: int = 0
    settled: int = 0

    @property
    def is_sparse(self) -> bool:
        """Whether the rows that a batch does not touch wait."""
        return self.settings.traits.is_sparse

    @property
    def rows(self) -> int:
        """The number of rows that can take steps of their own."""
        return (self.stop - self.start) // self.settings.row_width if self.settings.row_width else 0

    def saves_time(self, rows: Rows) -> bool:
        """Return whether a step of these rows alone takes less time than one of the whole stretch."""
        return SCATTER_COST * rows.size * (self.settings.row_width + ROW_COST) < self.stop - self.start


def find_segments(
    parameters: Sequence[ParameterSpec],
    ranges: Sequence[Range],
    optimization: Optimization,
    *,
    per_parameter: bool,
    named: bool = False,
) -> list[Segment]:
    """Return the stretches of the shard that take their steps as one.

    Args: per_parameter: see `Shard`.  named: keep parameters with clipping apart, so that the log can name them.
    Raises: ConfigError: if the settings of a parameter do not go together, or not with the method.
    """
    segments: list[Segment] = []
    at = row = 0
    for index, start, stop in ranges:
        p = parameters[index]
        settings = _choose_settings(p, optimization, per_parameter=per_parameter, named=named)
        if not settings.row_width and stop - start == p.size and _can_rest(p, optimization, settings):
            settings = replace(settings, row_width=p.row_width, name=p.name)
        last = segments[-1] if segments else None
        if last and last.settings == settings and not settings.row_width:
            last.stop = at + stop - start
        else:
            method = ALL_METHODS[optimization.learning_method](optimization, settings.traits)
            segments.append(Segment(at, at + stop - start, settings, method, index, row))
            row += segments[-1].rows
        at = segments[-1].stop
    return segments


def _can_rest(p: ParameterSpec, optimization: Optimization, settings: Settings) -> bool:
    """Return whether rows without gradient may be left out of a step."""
    return (
        ALL_METHODS[optimization.learning_method].rests
        and p.size >= LEAST_RESTING
        and 0 < p.row_width < p.size
        and p.size % p.row_width == 0
        and not (settings.traits.momentum or settings.traits.decay or settings.decay)
        and not optimization.average_window
    )


def _choose_settings(p: ParameterSpec, optimization: Optimization, *, per_parameter: bool, named: bool) -> Settings:
    """Return which of a parameter's settings count."""
    if not per_parameter:
        return Settings(Traits(p.learning_rate, p.momentum, p.decay_rate))
    decay = separate_decay(p, always=ALL_METHODS[optimization.learning_method].separates_decay)
    if p.sparse_update:
        _check_rows(p, optimization)
    clip = p.gradient_clipping_threshold
    return Settings(
        Traits(p.learning_rate, p.momentum, p.decay_rate if decay is None else 0.0, p.sparse_update),
        clip,
        decay,
        p.row_width if p.sparse_update else 0,
        p.name if p.sparse_update or (named and clip) else "",
    )


def check_momentum(p: ParameterSpec, optimization: Optimization) -> None:
    """Return if the method can step rows of a parameter with its momentum.

    Raises: ConfigError: if it would divide by it.
    """
    if optimization.learning_method == "sparse_momentum" and not p.momentum:
        raise ConfigError(
            f"parameter {p.name} has sparse_update and momentum 0, by which sparse_momentum divides; "
            "use MomentumOptimizer(momentum=...) without sparse=True"
        )


def _check_rows(p: ParameterSpec, optimization: Optimization) -> None:
    name = optimization.learning_method
    if not ALL_METHODS[name].takes_rows:
        raise ConfigError(
            f"parameter {p.name} has sparse_update, which {name} cannot do; leave sparse_update out of its ParamAttr, "
            "or take another learning_method"
        )
    check_momentum(p, optimization)
    if p.row_width < 1 or p.size % p.row_width:
        raise BugError(f"parameter {p.name}: rows of {p.row_width} elements do not fill {p.size}")
