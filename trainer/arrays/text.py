"""Arrays in the text form of PaddlePaddle v0.10, for the print layer and the printing evaluators."""

from __future__ import annotations

from trainer.arrays.arguments import Argument, Array, Ids

# the end of an error about different numbers of rows
ROWS_ADVICE = (
    "a sequence has a row for each item: pooling_layer, last_seq or first_seq makes one row of a sequence, and "
    "expand_layer repeats a row for each item"
)


def spell_rows(values: Array) -> str:
    """Return a matrix with a blank after each number and a newline after each row."""
    return "".join("".join(f"{x:g} " for x in row) + "\n" for row in values.tolist())


def spell_starts(starts: Ids) -> str:
    """Return positions as text, for example `[0 3 7 ]`."""
    return f"[{''.join(f'{position} ' for position in starts.tolist())}]\n"


def spell_fields(argument: Argument) -> list[tuple[str, str]]:
    """Return (title, text) for the values of an argument and for the positions of its sequences.

    Ids are omitted, as in v0.10.
    """
    fields = []
    if argument.value is not None:
        fields.append(("value", spell_rows(argument.value)))
    if argument.starts is not None:
        fields.append(("sequence pos", spell_starts(argument.starts)))
    if argument.sub_starts is not None:
        fields.append(("sub-sequence pos", spell_starts(argument.sub_starts)))
    return fields
