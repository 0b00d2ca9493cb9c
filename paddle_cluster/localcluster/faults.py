"""Parse the faults and delays of the command line, and choose the pods that they apply to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paddle_cluster.localcluster.errors import OptionError

_INDEX = re.compile("[0-9]{1,18}")  # the number of a pod
MOST_SECONDS = 1e9  # Python cannot wait much longer


@dataclass(frozen=True)
class Fault:
    """A fault of the kind kill, term or delay, with the values of `POD@WHEN`; WHEN becomes `seconds` or `pattern`.

    A fault applies once per pod index, so the replacement of a killed pod survives. A fault that is given twice applies
    twice. watched: for a delay with a pattern, the pod whose output is searched for the pattern.
    """

    kind: str
    pod: str
    seconds: float | None = None
    pattern: re.Pattern[str] | None = None
    watched: str = ""

    def __str__(self) -> str:
        """Return the fault as it is written on the command line."""
        pattern = self.pattern.pattern if self.pattern else ""
        pattern = f"{self.watched}:{pattern}" if self.watched else pattern
        when = pattern if self.seconds is None else f"{self.seconds:g}"
        return f"--{self.kind} {self.pod}@{when}"


def parse_fault(kind: str, text: str) -> Fault:
    """Return the fault that a text `POD@WHEN` describes.

    POD is a completion index (for a Job without indexes: the number of the pod in order of creation), or a pattern for
    the name (`*-0-*`). WHEN is a number of seconds, or a regular expression for a line of the pod's output. A delayed
    pod has no output, so the WHEN of a delay is a number of seconds, or `POD:REGEX` for a line of another pod.

    Raises: OptionError: if the text has another form.
    """
    pod, at, when = text.partition("@")
    if not at or not pod or not when:
        raise OptionError(f"--{kind} {text}: the form is POD@WHEN, for example 1@2.5 or 1@Pass=0")
    _check_index(kind, text, pod)
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?s?", when):
        seconds = float(when.rstrip("s"))
        if seconds > MOST_SECONDS:
            raise OptionError(f"--{kind} {text}: WHEN is at most {MOST_SECONDS:.0f} seconds")
        return Fault(kind, pod, seconds=seconds)
    watched = ""
    if kind == "delay":
        watched, colon, when = when.partition(":")
        if not colon or not watched or not when:
            raise OptionError(f"--{kind} {text}: WHEN is a number of seconds or POD:REGEX, for example 2@0:waiting")
    _check_index(kind, text, watched)
    return Fault(kind, pod, pattern=compile_pattern(when, f"--{kind} {text}"), watched=watched)


def _check_index(kind: str, text: str, pod: str) -> None:
    """Raise OptionError if a pod is given by digits that are no index, and would match no pod."""
    if pod.isdecimal() and not _INDEX.fullmatch(pod):
        raise OptionError(f"--{kind} {text}: POD is a number of at most 18 digits from 0 to 9, or a pattern for a name")


def parse_faults(orders: Mapping[str, Iterable[str]], count: int | None = None) -> list[Fault]:
    """Return the faults of a command line.

    Args: orders: {kind: the texts `POD@WHEN` of this kind}.  count: number of pods of an indexed Job; None: the Job has
        no indexes.
    Raises: OptionError: if a text has another form, or contains an index that no pod of the Job has.
    """
    faults = [parse_fault(kind, text) for kind, texts in orders.items() for text in texts]
    for fault in faults:
        for pod in (fault.pod, fault.watched):
            if count is not None and _INDEX.fullmatch(pod) and int(pod) >= count:
                raise OptionError(f"{fault}: there is no pod {pod}; the Job has the pods 0 to {count - 1}")
    return faults


def parse_follow(text: str) -> tuple[str, re.Pattern[str]]:
    """Return (pod, pattern) of `[POD@]REGEX`; without `POD@`, the pod is `*`, which means all pods.

    Raises: OptionError: if the regular expression is invalid.
    """
    match = re.fullmatch(r"([\w*?.-]+)@(.+)", text)
    pod, pattern = (match[1], match[2]) if match else ("*", text)
    return pod, compile_pattern(pattern, f"--follow {text}")


def compile_pattern(text: str, where: str) -> re.Pattern[str]:
    """Return a compiled regular expression.

    Args: where: the flag or function that contains the expression, for the error's text.
    Raises: OptionError: if the expression is invalid.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(f"{where}: {text!r} is no regular expression: {error}") from error


class Orders:
    """The faults that have not been applied yet to a pod, which is identified by its name and its number.

    Thread safety: this class has no lock; each caller holds the kubelet's lock.
    """

    def __init__(self, faults: Sequence[Fault]):
        self.faults = tuple(faults)
        self._spent: set[tuple[int, int]] = set()  # (index in `faults`, pod number) of the faults that were applied
        self._opened: set[int] = set()

    def armed(self, name: str, number: int) -> list[int]:
        """Return the indexes of the faults (except delays) that can still apply to a running pod."""
        return [each for each in self._meant(name, number) if self.faults[each].kind != "delay"]

    def spend(self, fault: int, number: int) -> Fault:
        """Record that a fault was applied to a pod, and return the fault.

        Args: fault: index of the fault in `faults`. number: the pod's number.
        """
        self._spent.add((fault, number))
        return self.faults[fault]

    def take_delay(self, name: str, number: int) -> int | None:
        """Return the index of the delay for a new pod, or None if the pod has no delay. Record the delay as applied."""
        found = next((each for each in self._meant(name, number) if self.faults[each].kind == "delay"), None)
        if found is not None:
            self.spend(found, number)
        return found

    def is_over(self, delay: int, waited: float) -> bool:
        """Return whether a delay has ended: its pattern has occurred, or the pod has waited long enough."""
        seconds = self.faults[delay].seconds
        return delay in self._opened or (seconds is not None and waited >= seconds)

    def hear(self, name: str, number: int, text: str) -> list[int]:
        """Return the indexes of the faults that a line of a pod's output triggers; record the delays that end now."""
        matching = [each for each, fault in enumerate(self.faults) if fault.pattern and fault.pattern.search(text)]
        self._opened |= {each for each in matching if concerns(self.faults[each].watched, name, number)}
        armed = self.armed(name, number) if matching else []
        return [each for each in matching if each in armed]

    def _meant(self, name: str, number: int) -> list[int]:
        unspent = [each for each in range(len(self.faults)) if (each, number) not in self._spent]
        return [each for each in unspent if concerns(self.faults[each].pod, name, number)]


def concerns(selector: str, name: str, number: int) -> bool:
    """Return whether a selector, which is the number of a pod or a pattern for names, matches a pod."""
    return int(selector) == number if _INDEX.fullmatch(selector) else fnmatchcase(name, selector)
