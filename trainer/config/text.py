"""Messages in the text format that v0.10 printed, byte for byte like protobuf in Python 2.

The format has an indent of two spaces, fields in ascending order of their numbers, and floats with 12 significant
digits (`25.0`, `1e-06`). Quotes and bytes outside ASCII are escaped.
"""

import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_ESCAPES = {
    ord(character): escape
    for character, escape in {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "'": r"\'", "\\": r"\\"}.items()
}


def to_text(message: Message) -> str:
    """Return the message as text; a text that is not empty ends with a newline."""
    return "".join(_lines(message, ""))


def _lines(message: Message, indent: str) -> Iterator[str]:
    # ListFields yields the fields that are present, in ascending order of their numbers
    for field, value in message.ListFields():
        values = value if hasattr(value, "extend") else [value]
        for item in values:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield f"{indent}{field.name} {{\n"
                yield from _lines(item, indent + "  ")
                yield f"{indent}}}\n"
            else:
                yield f"{indent}{field.name}: {_scalar(field.type, item)}\n"


def _scalar(kind: int, value: Any) -> str:
    if kind == FieldDescriptor.TYPE_DOUBLE:
        return format_float(value)
    if kind == FieldDescriptor.TYPE_FLOAT:
        return format_float(_as_given(value))
    if kind == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    if kind == FieldDescriptor.TYPE_STRING:
        return f'"{escape(value)}"'
    return str(value)


def _as_given(value: float) -> float:
    """Return the shortest decimal number that rounds to the single-precision value: 0.45 for 0.449999988079."""
    candidates = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((near for near in candidates if struct.pack("f", near) == struct.pack("f", value)), value)


def format_float(value: float) -> str:
    """Return a float in the format of str() in Python 2."""
    text = f"{value:.12g}"
    return text if any(character in text for character in ".en") else text + ".0"


def escape(text: str) -> str:
    """Escape the quotes and control characters of a text, and the bytes outside ASCII of its UTF-8 encoding."""
    return "".join(_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())
