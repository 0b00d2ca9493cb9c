"""The states of the two global random generators that user code may use: those of Python and of numpy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from trainer.arrays.encoding import decode_array, encode_array

States = tuple[Any, Any]
_AT_START = random.getstate()


def take() -> States:
    """Return the present states of both generators."""
    return random.getstate(), np.random.get_state(legacy=False)


def restore(states: States) -> None:
    """Restore states that `take` has returned in this process."""
    random.setstate(states[0])
    np.random.set_state(states[1])


def seed_if_unused(seed: int) -> None:
    """Seed Python's generator if no code has seeded or used it in this process. Its first state differs in each run."""
    if random.getstate() == _AT_START:
        random.seed(seed)


def write(states: States) -> dict[str, Any]:
    """Return states in a form that JSON can store; without numpy's state if user code has replaced that generator."""
    (version, words, spare), of_numpy = states
    record: dict[str, Any] = {
        "version": version,
        "words": encode_array(np.array(words, np.uint32)),
        "spare": _hex(spare),
    }
    if of_numpy["bit_generator"] == "MT19937":
        record["numpy"] = {
            "words": encode_array(of_numpy["state"]["key"]),
            "place": int(of_numpy["state"]["pos"]),
            "spare": _hex(of_numpy["gauss"]) if of_numpy["has_gauss"] else None,
        }
    return record


def put_back(record: dict[str, Any]) -> None:
    """Restore the states of both generators."""
    words = tuple(decode_array(record["words"]).tolist())
    random.setstate((record["version"], words, _number(record["spare"])))
    of_numpy = record.get("numpy")
    if of_numpy is not None:
        spare = _number(of_numpy["spare"])
        place = of_numpy["place"]
        np.random.set_state(
            ("MT19937", decode_array(of_numpy["words"]), place, int(spare is not None), 0.0 if spare is None else spare)
        )


def _hex(number: float | None) -> str | None:
    return None if number is None else float(number).hex()


def _number(text: str | None) -> float | None:
    return None if text is None else float.fromhex(text)
