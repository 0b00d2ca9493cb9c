"""The complete state of a shard, taken between two steps and put back into another of the same layout, bit for bit.

Nothing is brought up to date for it: rows that rest go on resting and decay that is due stays due, so that a run goes
on the same whether it was looked at or not.

Counters can be written as JSON: floats are hexadecimal text there, since a decimal one may not come back as it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pserver import glog
from pserver.errors import BugError, ConfigError
from pserver.segments import Segment
from pserver.shard import Shard

Counters = dict[str, Any]
VALUES, STATE, CLOCKS = "values", "state.", "clock."  # names, and prefixes of names, of the arrays


@dataclass(frozen=True)
class Part:
    """The state of one shard.

    `counters` can be written as JSON. `arrays` are the values, the optimiser's arrays (`state.<name>`) and the row
    clocks (`clock.<purpose>`); as `take` gives them they are the shard's own, to be written before its next step.
    """

    counters: Counters
    arrays: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Captured:
    """The state of a job between two batches: a part for each service, and what each trainer says of itself.

    `trainers` is by trainer id, None where nothing is known; what they say can be written as JSON.
    """

    services: list[Part]
    trainers: list[dict[str, Any] | None]


def take(shard: Shard) -> Part:
    """Return the state of a shard, without copies and without changing it.

    Raises: BugError: if averages stand in the place of the values.
    """
    if shard.shows_averages:
        raise BugError("the state of a shard is asked for while averages stand in the place of its values")
    counters: Counters = {
        "settings": {name: _write(value) for name, value in asdict(shard.optimization).items()},
        "size": shard.size,
        "layout": [_describe(segment) for segment in shard.segments],
        "samples": shard.samples,
        "steps": shard.steps,
        "passes": shard.passes,
        "batch": shard.batch,
        "rate": shard.rate.hex(),
        "schedule": list(shard.schedule.said),
        "averaging": None if shard.averaging is None else _write_all(vars(shard.averaging)),
        "segments": [
            {
                "decayed": segment.decayed,
                "settled": segment.settled,
                "scalars": {name: float(getattr(segment.method, name)).hex() for name in segment.method.carried},
            }
            for segment in shard.segments
        ],
    }
    return Part(counters, _arrays_of(shard))


def put_back(shard: Shard, part: Part) -> None:
    """Give a shard the state that another of the same layout and method had.

    Settings that differ, but for the method, are the shard's, with a warning.
    Raises: ConfigError: naming what does not fit, on both sides.
    """
    counters, arrays = part.counters, _arrays_of(shard)
    _check(shard, part, arrays)
    shard.restore()
    for name, array in arrays.items():
        np.copyto(array, part.arrays[name])
    shard.samples, shard.steps, shard.passes = counters["samples"], counters["steps"], counters["passes"]
    shard.batch, shard.rate = counters["batch"], float.fromhex(counters["rate"])
    shard.schedule.said = tuple(counters["schedule"])
    if shard.averaging is not None:
        vars(shard.averaging).update({name: _read(value) for name, value in counters["averaging"].items()})
    for segment, given in zip(shard.segments, counters["segments"], strict=True):
        segment.decayed, segment.settled = given["decayed"], given["settled"]
        segment.method.number = shard.steps
        for name, text in given["scalars"].items():
            setattr(segment.method, name, np.float32(float.fromhex(text)))


def _arrays_of(shard: Shard) -> dict[str, npt.NDArray[Any]]:
    return {
        VALUES: shard.values,
        **{STATE + name: array for name, array in shard.state.items()},
        **{CLOCKS + name: array for name, array in shard.row_steps.items()},
    }


def _describe(segment: Segment) -> list[Any]:
    """Return what a stretch must have in common with the one whose state it takes."""
    settings = segment.settings
    return [segment.start, segment.stop, settings.row_width, segment.is_sparse, list(segment.method.state_names())]


def _check(shard: Shard, part: Part, arrays: dict[str, npt.NDArray[Any]]) -> None:
    given, own = part.counters["settings"], asdict(shard.optimization)
    method = given["learning_method"]
    if method != shard.optimization.learning_method:
        raise ConfigError(
            f"the checkpoint is of learning_method '{method}', the config asks for "
            f"'{shard.optimization.learning_method}'; their states do not fit: change the config, or start anew"
        )
    pairs = {
        "elements": (part.counters["size"], shard.size),
        "stretches [start, stop, row width, sparse, state]": (
            part.counters["layout"],
            [_describe(segment) for segment in shard.segments],
        ),
        "arrays": (_shapes(part.arrays), _shapes(arrays)),
        "averaging": (part.counters["averaging"] is not None, shard.averaging is not None),
    }
    for what, (theirs, ours) in pairs.items():
        if theirs != ours:
            raise ConfigError(
                f"the checkpoint does not fit this job: its {what}: {_shorten(theirs)}, here: {_shorten(ours)}; go on "
                "with the config, the number of servers and the ports that it was made with"
            )
    changed = [
        f"{name} {_read(given[name])!r} is now {value!r}"
        for name, value in own.items()
        if name in given and _read(given[name]) != value
    ]
    if changed:
        glog.warning(f"settings have changed since the checkpoint, and the new ones count: {', '.join(changed)}")


def _shapes(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
    return {name: f"{array.dtype} {list(array.shape)}" for name, array in sorted(arrays.items())}


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _write_all(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _write(value) for name, value in values.items()}


def _write(value: Any) -> Any:
    return {"float": value.hex()} if isinstance(value, float) else value


def _read(value: Any) -> Any:
    return float.fromhex(value["float"]) if isinstance(value, dict) else value
