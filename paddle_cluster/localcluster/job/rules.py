"""Parse the rules of a podFailurePolicy, and reject what the Kubernetes API server rejects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddle_cluster.localcluster.errors import ManifestError

ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")


@dataclass(frozen=True)
class Rule:
    """One rule of a podFailurePolicy: it tests the exit code (operator and values), or the pod's conditions."""

    action: str
    operator: str = ""
    values: frozenset[int] = frozenset()
    container: str = ""
    conditions: tuple[tuple[str, str], ...] = ()


def parse_rules(policy: Any, per_index: bool) -> tuple[Rule, ...]:
    """Return the rules of a `podFailurePolicy` object.

    Raises: ManifestError: if an action or operator is unknown, if exit codes are not ascending or occur twice, or if
    the operator In has the value 0.
    """
    rules = []
    for number, entry in enumerate((policy or {}).get("rules") or []):
        where = f"podFailurePolicy.rules[{number}]"
        action = entry.get("action")
        if action not in ACTIONS:
            raise ManifestError(f"{where}.action is {action!r}: expected one of {', '.join(ACTIONS)}")
        if action == "FailIndex" and not per_index:
            raise ManifestError(f"{where}.action FailIndex needs backoffLimitPerIndex")
        codes, conditions = entry.get("onExitCodes"), entry.get("onPodConditions")
        if bool(codes) == bool(conditions):
            raise ManifestError(f"{where} needs either onExitCodes or onPodConditions")
        if codes:
            rules.append(_exit_code_rule(action, codes, where))
        else:
            pairs = tuple((str(item.get("type")), str(item.get("status", "True"))) for item in conditions)
            rules.append(Rule(action, conditions=pairs))
    return tuple(rules)


def _exit_code_rule(action: str, codes: Mapping[str, Any], where: str) -> Rule:
    operator, values = codes.get("operator"), codes.get("values") or []
    if operator not in ("In", "NotIn"):
        raise ManifestError(f"{where}.onExitCodes.operator is {operator!r}, expected In or NotIn")
    if not values or not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise ManifestError(f"{where}.onExitCodes.values is {values!r}: a list of numbers is needed")
    if list(values) != sorted(set(values)):
        raise ManifestError(f"{where}.onExitCodes.values must be ascending, without repetitions: {sorted(set(values))}")
    if operator == "In" and 0 in values:
        raise ManifestError(f"{where}.onExitCodes.values must not contain 0 if the operator is In")
    return Rule(action, operator, frozenset(values), str(codes.get("containerName") or ""))
