"""Metrics of a program as a table: name, kind, labels, meaning, and how Prometheus gets their values.

What a program counts are plain attributes of its own; they are read when somebody asks. The library that spells them
is an extra (`metrics`), and everything but /metrics works without it.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from runtime import VERSION

MOST_TRAINERS = 128  # with series of their own; those with higher ids share one, so that no job floods a database
OTHERS = "others"


class Metric(NamedTuple):
    """One metric; the unit is in the name, a counter's ends with `_total`."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`counter` or `gauge`."""
        return "counter" if self.name.endswith("_total") else "gauge"


class Sample(NamedTuple):
    """A value now."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


BUILD = Metric(
    "paddle_build_info",
    "always 1: which program of which job and attempt",
    ("program", "version", "paddle_job", "attempt"),
)


def describe_build(program: str, job: str, attempt: str) -> Sample:
    """Return the series that says what runs."""
    return Sample(BUILD, 1, (program, VERSION, job, attempt))


def label_of(trainer: int) -> str:
    """Return the label of a trainer."""
    return str(trainer) if trainer < MOST_TRAINERS else OTHERS


def add_up(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the samples with those of one metric and the same labels as one: of trainers that share a label."""
    sums: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for metric, value, labels in samples:
        sums[metric, labels] = sums.get((metric, labels), 0.0) + value
    for (metric, labels), value in sums.items():
        yield Sample(metric, value, labels)


class Exposition:
    """The page for Prometheus.

    Args: read: yields the values as they are now; called by the thread that answers.
    """

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read
        self._library: Any = None
        self._registry: Any = None
        # now, before a config leads to modules of the user's that have the same names; beside the start of the program
        self._loading = threading.Thread(target=self._load, name="metrics", daemon=True)
        self._loading.start()

    @property
    def is_there(self) -> bool:
        """Whether the library is installed; waits until that is known."""
        self._loading.join()
        return self._library is not None

    def render(self) -> tuple[str, str]:
        """Return the page and its content type."""
        page: bytes = self._library.generate_latest(self._registry)
        return page.decode(), self._library.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Any]:
        """Yield the families, as the library wants them."""
        families: dict[Metric, Any] = {}
        core = self._library.core
        for metric, value, labels in add_up(self._read()):
            if metric not in families:
                make = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
                families[metric] = make(metric.name, metric.meaning, labels=metric.labels)
            families[metric].add_metric(labels, value)
        yield from families.values()

    def _load(self) -> None:
        try:
            library = importlib.import_module("prometheus_client")
            importlib.import_module("prometheus_client.core")
            registry = library.CollectorRegistry(auto_describe=False)
            registry.register(self)
            library.ProcessCollector(registry=registry)
        except (ImportError, AttributeError):  # not installed, or something else of that name
            return
        self._library, self._registry = library, registry
