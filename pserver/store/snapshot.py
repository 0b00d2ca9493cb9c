"""The complete state of a shard between two steps, and its restoration into a shard of the same layout, bit for bit.

Taking a snapshot does not bring the shard up to date: lazy rows and due decay stay as they are. A snapshot therefore
changes no bit of the run.

Counters are JSON-compatible: floats are written as hexadecimal text, because decimal text may not restore every bit.

No I/O.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, ConfigError
from paddle_base.runtime.schema import (
    MOST_EXACT,
    Either,
    Fields,
    Integer,
    Items,
    Maybe,
    Named,
    Record,
    Row,
    Such,
    Text,
    Truth,
    Word,
)
from pserver.optim.averaging import Averaging
from pserver.optim.methods import ALL_METHODS
from pserver.store.parameter_groups import ParameterGroup
from pserver.store.shard import Shard

Counters = dict[str, Any]
# the name of the array of values, and the prefixes of the names of all other arrays
VALUES, STATE, CLOCKS = "values", "state.", "clock."


@dataclass(frozen=True)
class Part:
    """The state of one shard.

    `counters` are JSON-compatible. `arrays` are the values, the optimiser's arrays (`state.<name>`) and the row clocks
    (`clock.<purpose>`). The arrays of a state from `take` are the shard's own arrays, which must be written before the
    shard's next step.
    """

    counters: Counters
    arrays: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class CheckpointState:
    """The state of a job between two batches: a part for each service, and each trainer's own part.

    `trainers` contains the part of each trainer id, or None if a part is unknown. The parts are JSON-compatible.
    `origins` is set if the samples are divided again among the trainers, and the pass therefore restarts. For each
    trainer id, `origins` contains the id of the trainer whose part of the checkpoint is used.
    """

    services: list[Part]
    trainers: list[dict[str, Any] | None]
    origins: list[int] | None = None


def take(shard: Shard) -> Part:
    """Return the state of a shard, without copies and without changing it.

    Raises: BugError: the values are replaced by averages.
    """
    if shard.shows_averages:
        raise BugError("the state of a shard is requested while averages replace its values")
    counters: Counters = {
        "settings": {name: _write(value) for name, value in asdict(shard.optimization).items()},
        "size": shard.size,
        "layout": [_describe(group) for group in shard.groups],
        "samples": shard.samples,
        "steps": shard.data.steps,
        "passes": shard.passes,
        "batch": shard.data.batch,
        # hexadecimal, because JSON has no infinity and no NaN
        "rate": shard.data.rate.hex(),
        "schedule": list(shard.schedule.reported),
        "averaging": None if shard.data.averaging is None else _write_all(vars(shard.data.averaging)),
        # the parameter groups; the key in the JSON is their former name, which checkpoints of earlier releases contain
        "segments": [
            {
                "decayed": group.decayed,
                "settled": group.settled,
                "scalars": {name: float(getattr(group.method, name)).hex() for name in group.method.saved_scalars},
            }
            for group in shard.groups
        ],
    }
    return Part(counters, _arrays_of(shard))


def put_back(shard: Shard, part: Part) -> None:
    """Restore a state into a shard that has the layout and the method of the state's shard.

    The shard keeps its own settings, and a warning lists the settings that differ. Only the learning method must be
    equal.
    Raises: ConfigError: the state does not fit the shard; the message describes the difference.
    """
    counters, arrays = part.counters, _arrays_of(shard)
    _check(shard, part, arrays)
    shard.restore()
    for name, array in arrays.items():
        np.copyto(array, part.arrays[name])
    shard.samples, shard.data.steps, shard.passes = counters["samples"], counters["steps"], counters["passes"]
    shard.data.batch, shard.data.rate = counters["batch"], float.fromhex(counters["rate"])
    shard.schedule.reported = tuple(counters["schedule"])
    if shard.data.averaging is not None:
        vars(shard.data.averaging).update({name: _read(value) for name, value in counters["averaging"].items()})
    for group, given in zip(shard.groups, counters["segments"], strict=True):
        group.decayed, group.settled = given["decayed"], given["settled"]
        group.method.number = shard.data.steps
        for name, text in given["scalars"].items():
            setattr(group.method, name, np.float32(float.fromhex(text)))


# ----- Validity


def _is_hexadecimal(text: str) -> bool:
    try:
        float.fromhex(text)
    except (ValueError, OverflowError):
        return False
    return True


_MOST = 1 << 24  # maximum number of parameter groups
_SCALARS = {name: None for method in ALL_METHODS.values() for name in method.saved_scalars}
_HEXADECIMAL = Such(Text(40), _is_hexadecimal, "a hexadecimal number")
_FLOAT, _INTEGER = Fields(float=_HEXADECIMAL), Integer(-1 - MOST_EXACT)
# the form that `_write` produces
_SETTING = Maybe(Either((Text(_MOST), _INTEGER, Truth(), _FLOAT), "a setting"))
_GROUP = Record(decayed=Integer(), settled=Integer(), scalars=Named(Word(tuple(_SCALARS)), _HEXADECIMAL, len(_SCALARS)))
COUNTERS = Such(
    Record(
        settings=Such(
            Named(Text(_MOST), _SETTING, _MOST),
            lambda settings: isinstance(settings.get("learning_method"), str),
            "settings with a learning_method",
        ),
        averaging=Maybe(
            Fields(**{one.name: Either((_FLOAT, _INTEGER, Truth()), "a number") for one in fields(Averaging)})
        ),
        rate=_HEXADECIMAL,
        schedule=Row((Integer(), Truth())),
        segments=Items(_GROUP, _MOST),
        **dict.fromkeys(("size", "samples", "steps", "passes", "batch"), Integer()),
    ),
    lambda found: isinstance(layout := found.get("layout"), list) and len(layout) == len(found["segments"]),
    "counters with a layout that has an entry for each of the segments",
)
"""The shape of the counters of a shard in a file."""


def _arrays_of(shard: Shard) -> dict[str, npt.NDArray[Any]]:
    return {
        VALUES: shard.values,
        **{STATE + name: array for name, array in shard.data.arrays.items()},
        **{CLOCKS + name: array for name, array in shard.data.row_clocks.items()},
    }


def _describe(group: ParameterGroup) -> list[Any]:
    """Return the properties that a group must share with the group whose state it receives."""
    settings = group.settings
    return [group.start, group.stop, settings.row_width, group.is_sparse, list(group.method.state_names())]


def _check(shard: Shard, part: Part, arrays: dict[str, npt.NDArray[Any]]) -> None:
    given, own = part.counters["settings"], asdict(shard.optimization)
    # the method comes first: another method also has other arrays, and they would be named in its place
    method = given["learning_method"]
    if method != shard.optimization.learning_method:
        raise ConfigError(
            f"the checkpoint was made with learning_method '{_shorten(method)}', but the config has "
            f"'{shard.optimization.learning_method}', whose state is different: change the config, or start anew"
        )
    pairs = {
        "elements": (part.counters["size"], shard.size),
        "parameter groups [start, stop, row width, sparse, state]": (
            part.counters["layout"],
            [_describe(group) for group in shard.groups],
        ),
        "arrays": (_shapes(part.arrays), _shapes(arrays)),
        "averaging": (part.counters["averaging"] is not None, shard.data.averaging is not None),
    }
    for what, (theirs, ours) in pairs.items():
        if theirs != ours:
            raise ConfigError(
                f"the checkpoint does not fit this job: its {what}: {_shorten(theirs)}; {what} of this job: "
                f"{_shorten(ours)}; resume with the config, the number of servers and the ports with which the "
                "checkpoint was made"
            )
    # only a warning: these settings do not shape the state, and users resume with another rate on purpose
    changed = [
        f"{name} {_read(given[name])!r} is now {value!r}"
        for name, value in own.items()
        if name in given and _read(given[name]) != value
    ]
    if changed:
        glog.warning(f"settings have changed since the checkpoint, and the new settings are used: {', '.join(changed)}")


def _shapes(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
    return {name: f"{array.dtype} {list(array.shape)}" for name, array in sorted(arrays.items())}


def _shorten(value: object) -> str:
    return glog.clean(value, 200)


def _write_all(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _write(value) for name, value in values.items()}


def _write(value: Any) -> Any:
    return {"float": value.hex()} if isinstance(value, float) else value


def _read(value: Any) -> Any:
    return float.fromhex(value["float"]) if isinstance(value, dict) else value
