"""A checkpoint whose samples were divided otherwise among the trainers than now (pure).

Other trainers, or pods that are absent now and were not then, or the other way round, have other samples. The places
in the data that the checkpoint tells are then those of no trainer of now: the pass that it lies in begins again, with
its parameters and the state of the optimiser. The servers' part is divided by `pserver.store.resharding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pserver.store.snapshot import CheckpointState
from runtime import glog
from runtime.errors import ConfigError

ABSENT = "absent"  # key of what a trainer says of itself: `find_absent` of then
BEFORE = "before"  # the stage of a position between two passes (trainer.training.position)


def find_absent(environ: Mapping[str, str]) -> str:
    """Return the indexes of the pods that this attempt does without, as the launcher tells them; "" for none."""
    return environ.get("PADDLE_ABSENT", "")


def redivide(restored: CheckpointState, trainers: int, absent: str, shown: str) -> CheckpointState:
    """Return a checkpoint as so many trainers go on from it: as it is where they have the samples of then.

    Args: absent: see `find_absent`.  shown: its path, for the log.
    Raises: ConfigError: trainer 0 of then has told nothing.
    """
    told = restored.trainers
    first = told[0] if told else None
    was_absent = "" if first is None else first.get(ABSENT, "")
    if len(told) == trainers and (first is None or was_absent == absent):
        return restored
    place = {} if first is None else first["place"]
    number, is_before = place.get("number"), place.get("stage") == BEFORE
    if first is None or type(number) is not int or number < 0:
        raise ConfigError(
            f"the checkpoint {shown} was made by {_count(len(told), '')} and does not tell their place, this job has "
            f"{trainers}: go on with as many, or from the parameters of a pass alone: "
            "--init_model_path=<save_dir>/pass-*"
        )
    origins = [trainer % len(told) for trainer in range(trainers)]
    begins = {"place": {"number": number, "stage": BEFORE}, ABSENT: absent, "data": None, "test": None, "sums": {}}
    sentence = (
        f"the checkpoint {shown} was made by {_count(len(told), was_absent)}, this job has {_count(trainers, absent)}: "
        "parameters, optimiser state and learning rate schedule go on, the samples are divided anew"
    )
    if is_before:
        glog.info(f"{sentence}, from pass {number} on")
    else:
        glog.warning(f"{sentence}, and pass {number} begins again: its samples of before the checkpoint come once more")
    return replace(restored, trainers=[{**(told[one] or first), **begins} for one in origins], origins=origins)


def _count(trainers: int, absent: Any) -> str:
    without = f" (without pods {glog.clean(absent, 100)})" if absent else ""
    return f"{trainers} trainer{'s' * (trainers != 1)}{without}"
