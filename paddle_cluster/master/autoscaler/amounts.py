"""Pure functions that convert Kubernetes quantities to integers, and that sum the requests of a pod. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from paddle_base.runtime.kubernetes.text import parse_quantity

# pairs of a resource and its amount, sorted by the name of the resource; the unit for CPUs is a thousandth of a CPU
Requests = tuple[tuple[str, int], ...]

EVERY = "*"  # in caps: every namespace that has no cap of its own

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LARGEST = 1 << 62  # Kubernetes refuses larger amounts
# the resources without a prefix; each other resource is a domain, "/" and a name
_RESOURCE = re.compile(
    r"cpu|memory|pods|ephemeral-storage|hugepages-[1-9][0-9]*[KMGT]i"
    r"|[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
MOST_NAMES = 100  # maximum number of resources of a pod; a node has about ten


def parse_amount(text: object, *, is_cpu: bool = False) -> int:
    """Return a quantity as an integer, rounded up.

    The unit is a thousandth of a CPU for CPUs, and the resource's own unit (such as a byte) otherwise.

    Raises: ValueError: the text is not a quantity.
    """
    number = parse_quantity(text) * (1000 if is_cpu else 1)
    whole = int(min(number, Decimal(_LARGEST)))
    return min(whole + (whole < number), _LARGEST)


def read_amounts(given: object) -> dict[str, int]:
    """Return the amount of each resource in a `requests` or `allocatable` object. Raises: ValueError: bad object."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError("the resources are not a JSON object")
    return {str(name): parse_amount(text, is_cpu=name == "cpu") for name, text in given.items()}


def parse_caps(text: str) -> dict[str, dict[str, int]]:
    """Return the amounts in the text of --namespace_caps, by namespace and resource.

    Raises: ValueError: the text is malformed.
    """
    caps: dict[str, dict[str, int]] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        namespace, _, amounts = part.partition(":")
        pairs = [one.partition("=") for one in amounts.split(",")]
        if not (namespace == EVERY or _NAME.fullmatch(namespace)) or not all(
            name and amount for name, _, amount in pairs
        ):
            raise ValueError(f"{part[:80]!r} is not of the form NAMESPACE:cpu=8,memory=32Gi")
        if namespace in caps:
            raise ValueError(f"the namespace {namespace} has two caps")
        caps[namespace] = read_amounts(
            _check_names(namespace, [(name.strip(), rest.strip()) for name, _, rest in pairs])
        )
    return caps


def _check_names(namespace: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the pairs as a dictionary. Raises: ValueError: a cap of this resource would bound nothing."""
    amounts = dict(pairs)
    if len(amounts) < len(pairs):
        raise ValueError(f"the cap of {namespace} has a resource twice")
    for name in amounts:
        if not _RESOURCE.fullmatch(name):
            raise ValueError(
                f"{name[:80]!r} is no resource, such as cpu, memory, pods, ephemeral-storage and nvidia.com/gpu"
            )
    return amounts


def sum_requests(spec: Mapping[str, Any]) -> Requests:
    """Return the amount that a pod requests of each resource.

    The amount is the sum over the containers of the pod, or the request of an init container if that is larger. The
    overhead of the pod is added. Amounts of 0, which change nothing, are left out.

    Source: k8s.io/component-helpers/resource, PodRequests.

    Raises: ValueError, TypeError, AttributeError: bad `spec`, or more than MOST_NAMES resources.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        _add(total, _requests_of(container))
    before: dict[str, int] = {}  # sum of the requests of the sidecars that run when the next init container starts
    highest: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        wants = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            _add(before, wants)
            wants = before
        else:
            wants = {name: wants.get(name, 0) + before.get(name, 0) for name in {*wants, *before}}
        for name, amount in wants.items():
            highest[name] = max(highest.get(name, 0), amount)
    _add(total, before)
    for name, amount in highest.items():
        total[name] = max(total.get(name, 0), amount)
    # since Kubernetes 1.34 a pod may also state its total requests, which replace the sum
    total |= read_amounts((spec.get("resources") or {}).get("requests"))
    _add(total, read_amounts(spec.get("overhead")))
    wanted = sorted((name, amount) for name, amount in total.items() if amount)
    if len(wanted) > MOST_NAMES:  # thousands of them would exhaust the autoscaler, which other namespaces share
        raise ValueError(f"a pod requests {len(wanted)} resources, and at most {MOST_NAMES} are accepted")
    return tuple(wanted)


def _requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return read_amounts(resources.get("limits")) | read_amounts(resources.get("requests"))


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
