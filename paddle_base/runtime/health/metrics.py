"""The metrics of a program as a table (name, kind, labels, meaning), and the export of the metrics to Prometheus.

A program keeps its counts in ordinary attributes, which are read at each request. The Prometheus library is an optional
extra (`metrics`). Without the library, everything except /metrics works.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from paddle_base.runtime import VERSION

# number of trainers with separate series; trainers with higher ids share one series, which limits the size of the
# database
MOST_TRAINERS = 128
OTHERS = "others"


class Metric(NamedTuple):
    """One metric. The name of a metric contains the unit, and the name of a counter ends with `_total`."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`counter` or `gauge`."""
        return "counter" if self.name.endswith("_total") else "gauge"


class Sample(NamedTuple):
    """A current value."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


BUILD = Metric(
    "paddle_build_info",
    "always 1; its labels name the program, the job and the attempt",
    ("program", "version", "paddle_job", "attempt"),
)


def describe_build(program: str, job: str, attempt: str) -> Sample:
    """Return the series that describes the running program."""
    return Sample(BUILD, 1, (program, VERSION, job, attempt))


def label_of(trainer: int) -> str:
    """Return the label of a trainer."""
    return str(trainer) if trainer < MOST_TRAINERS else OTHERS


def add_up(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the samples. Add up samples of a metric that have equal labels, because trainers may share a label."""
    sums: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for metric, value, labels in samples:
        sums[metric, labels] = sums.get((metric, labels), 0.0) + value
    for (metric, labels), value in sums.items():
        yield Sample(metric, value, labels)


class Exposition:
    """The page for Prometheus.

    Args: read: function that yields the current values; the thread that answers requests calls it.
    """

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read
        self._library: Any = None
        self._registry: Any = None
        # the import begins now, before the user's config can provide modules of the same names; a thread imports the
        # library, because the program must not wait
        self._loading = threading.Thread(target=self._load, name="metrics", daemon=True)
        self._loading.start()

    @property
    def is_there(self) -> bool:
        """Whether the library is installed; the property waits until the import has finished."""
        self._loading.join()
        return self._library is not None

    def render(self) -> tuple[str, str]:
        """Return the page and its content type."""
        page: bytes = self._library.generate_latest(self._registry)
        return page.decode(), self._library.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Any]:
        """Yield the metric families in the library's form."""
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
        except (ImportError, AttributeError):  # the library is not installed, or another module has its name
            return
        self._library, self._registry = library, registry
