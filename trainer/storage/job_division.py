"""Resume from a checkpoint of a job that divided its samples differently among the trainers.

If the number of trainers or the set of absent pods has changed, each trainer has different samples. The data positions
in the checkpoint are then of no use. The pass of the checkpoint therefore restarts, with the parameters and the
optimiser state of the checkpoint. `pserver.store.resharding` divides the state of the parameter servers anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from pserver.store.snapshot import CheckpointState

ABSENT = "absent"  # the key of a trainer's state under which a checkpoint stores the result of `find_absent`
BEFORE = "before"  # the stage of a position between two passes (see trainer.training.position)


def find_absent(environ: Mapping[str, str]) -> str:
    """Return the launcher's list of the pods that are absent from this attempt, by index; "" if no pod is absent."""
    return environ.get("PADDLE_ABSENT", "")


def redivide(restored: CheckpointState, trainers: int, absent: str, shown: str) -> CheckpointState:
    """Return the checkpoint, adapted to this number of trainers.

    If each trainer has the same samples as in the checkpoint, the checkpoint is unchanged.

    Args: absent: see `find_absent`. shown: the path of the checkpoint, for the log.
    Raises: ConfigError: the former trainer 0 has stored no state.
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
            f"the checkpoint {shown} was made by {_count(len(told), '')} and does not contain the trainers' position, "
            f"but this job has {trainers}: resume with the same number of trainers, or load only the parameters of a "
            "pass with --init_model_path=<save_dir>/pass-*"
        )
    origins = [trainer % len(told) for trainer in range(trainers)]
    begins = {"place": {"number": number, "stage": BEFORE}, ABSENT: absent, "data": None, "test": None, "sums": {}}
    sentence = (
        f"the checkpoint {shown} was made by {_count(len(told), was_absent)}, but this job has "
        f"{_count(trainers, absent)}: it keeps the parameters, the optimiser state and the learning rate schedule, and "
        "the samples are divided anew"
    )
    if is_before:
        glog.info(f"{sentence}, from pass {number} on")
    else:
        glog.warning(
            f"{sentence}, and pass {number} begins again: samples trained before the checkpoint are trained again"
        )
    return replace(restored, trainers=[{**(told[one] or first), **begins} for one in origins], origins=origins)


def _count(trainers: int, absent: Any) -> str:
    without = f" (without pods {glog.clean(absent, 100)})" if absent else ""
    return f"{trainers} trainer{'s' * (trainers != 1)}{without}"
