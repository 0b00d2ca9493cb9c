"""Pure functions for Kubernetes quantities ("500m", "1Gi") and for the downward API's resourceFieldRef."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from paddle_cluster.localcluster.errors import ManifestError

SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}


def parse_quantity(text: str) -> Decimal:
    """Return the number that a quantity such as 1Gi stands for.

    Raises: ManifestError: if the text is not a quantity.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", text.strip())
    if match is None or match[2] not in SUFFIXES:
        raise ManifestError(f"{text!r} is no quantity")
    return Decimal(match[1]) * SUFFIXES[match[2]]


def resource_value(reference: Mapping[str, Any], resources: Mapping[str, Any], name: str) -> str:
    """Return the value of a `resourceFieldRef` for a variable: the resource divided by the divisor, rounded up.

    Raises: ManifestError: if the container does not state this resource (a cluster would use the node's value).
    """
    field = str(reference.get("resource", ""))
    kind, _, resource = field.partition(".")
    stated = (resources.get(kind) or {}).get(resource)
    if stated is None:
        raise ManifestError(f"env {name}: the container states no {field}")
    divisor = parse_quantity(str(reference.get("divisor") or "1")) or Decimal(1)
    return str(math.ceil(parse_quantity(str(stated)) / divisor))
