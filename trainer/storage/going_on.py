"""Tell the user of a stopped run how to go on from what it has saved."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from paddle_base.runtime.gflags import split_argument
from paddle_base.runtime.saves import FOLDER
from trainer.flags import FLAGS, Values

_SAVE = re.compile(r"pass-([0-9]{5,})(-[0-9]{3,})?")


def describe_going_on(flags: Values, save_dir: str, checkpoint: str, save: str) -> str:
    """Return a sentence with the command that goes on, or "" if nothing was saved or nothing is left to train.

    Args: checkpoint: the name of the newest checkpoint of this run, or "". save: the name of its newest save, or "".
    """
    state = f"{save_dir}/{FOLDER}/{checkpoint}" if checkpoint else flags.resume_from
    if state and flags.local:
        return f"to go on from this state: {write_command(flags.arguments, {'resume_from': state})}"
    if not flags.local:  # other programs belong to the job, too
        flag = f"--resume_from={shlex.quote(state)}"
        return f"to go on, start all programs again, and every trainer with {flag}" if state else ""
    match = _SAVE.fullmatch(save)
    if match is None:
        return ""
    first = int(match[1]) if match[2] else int(match[1]) + 1
    left = flags.start_pass + flags.num_passes - first
    if left <= 0:
        return ""
    model = f"{save_dir}/{save}" if match[2] else ""
    command = write_command(flags.arguments, {"init_model_path": model, "start_pass": first or "", "num_passes": left})
    return (
        f"to go on with the parameters of {save}: {command} (--checkpoint_period_seconds=600 also keeps the state of "
        "the optimiser and the place in the data)"
    )


def write_command(arguments: Sequence[str], new: Mapping[str, object]) -> str:
    """Return the command of a run with other values of some flags; a flag with the value "" is left out."""
    kept, rest = [], list(arguments)
    while rest:
        words = [rest.pop(0)]
        name, text = split_argument(words[0])
        if text is None and name in FLAGS and FLAGS[name].kind is not bool:
            words.append(rest.pop(0))
        if name not in new:
            kept += words
    return shlex.join(["paddle", "train", *kept, *(f"--{name}={value}" for name, value in new.items() if value != "")])
