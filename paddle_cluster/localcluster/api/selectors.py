"""Pure functions that turn the label and field selectors of a list request into predicates on pod objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Predicate = Callable[[Mapping[str, Any]], bool]
Test = Callable[[str | None], bool]

_NAME = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_VALUE = r"[\w.-]*"
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_NAME})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_NAME})")
_FIELDS: dict[str, tuple[str, str]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
}


class SelectorError(ValueError):
    """An invalid selector; the API responds with 400."""


def parse_label_selector(text: str) -> Predicate:
    """Return the predicate of a label selector, a comma-separated list of requirements.

    A requirement has one of the operators =, ==, !=, in and notin, or is only `key` or `!key`.

    Raises: SelectorError: if the text is invalid.
    """
    tests = [_label_test(part) for part in _split(text)]

    def fits(pod: Mapping[str, Any]) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return all(test(labels.get(key)) for key, test in tests)

    return fits


def _split(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []


def _label_test(part: str) -> tuple[str, Test]:
    if match := _SET.fullmatch(part):
        values = {value.strip() for value in match[3].split(",")}
        if match[2] == "in":
            return match[1], lambda value: value is not None and value in values
        return match[1], lambda value: value is None or value not in values
    if match := _EQUALITY.fullmatch(part):
        return match[1], _equality(match[2], match[3])
    if match := _EXISTS.fullmatch(part):
        wanted = not match[1]
        return match[2], lambda value: (value is not None) == wanted
    raise SelectorError(f"unable to parse requirement: {part!r}")


def _equality(operator: str, wanted: str) -> Test:
    if operator == "!=":
        return lambda value: value != wanted
    return lambda value: value == wanted


def parse_field_selector(text: str) -> Predicate:
    """Return the predicate of a field selector, which tests name, namespace, phase, podIP or nodeName by =, == or !=.

    Raises: SelectorError: if the text is invalid, or names another field.
    """
    tests: list[tuple[tuple[str, str], Test]] = []
    for part in _split(text):
        match = re.fullmatch(r"([\w.]+)(==|=|!=)(.*)", part)
        if match is None or match[1] not in _FIELDS:
            raise SelectorError(f"field label not supported: {part}")
        tests.append((_FIELDS[match[1]], _equality(match[2], match[3])))

    def fits(pod: Mapping[str, Any]) -> bool:
        return all(test((pod.get(part) or {}).get(key)) for (part, key), test in tests)

    return fits
