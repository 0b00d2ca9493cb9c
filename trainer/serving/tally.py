"""What `paddle serve` counts, and its metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from paddle_base.runtime.health.metrics import Metric, Sample, describe_build

REQUESTS = Metric("paddle_serve_requests_total", "answered requests by status of HTTP", ("status",))
REQUEST_TIME = Metric("paddle_serve_request_seconds_total", "seconds from the head of a request to its answer")
OPEN = Metric("paddle_serve_open_requests", "requests that are read, wait or are computed now")
SAMPLES = Metric("paddle_serve_samples_total", "computed samples")
BATCHES = Metric("paddle_serve_batches_total", "computed batches")
BATCH_TIME = Metric("paddle_serve_batch_seconds_total", "seconds of computing batches")


class Tally:
    """The numbers of requests and batches. Thread safety: any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: Counter[int] = Counter()
        self._open = self._samples = self._batches = 0
        self._request_s = self._batch_s = 0.0

    def open_request(self, most: int) -> bool:
        """Count one more open request; return whether there are at most `most` now."""
        with self._lock:
            self._open += 1
            return self._open <= most

    def close_request(self, status: int, seconds: float) -> None:
        """Count one open request less, which was answered; 0: its client has gone."""
        with self._lock:
            self._open -= 1
            if status:
                self._statuses[status] += 1
                self._request_s += seconds

    def count_batch(self, samples: int, seconds: float) -> None:
        """Count a batch."""
        with self._lock:
            self._batches += 1
            self._samples += samples
            self._batch_s += seconds

    def read(self) -> Iterator[Sample]:
        """Yield the current values."""
        with self._lock:
            statuses = dict(self._statuses)
            numbers = (
                (REQUEST_TIME, self._request_s),
                (OPEN, float(self._open)),
                (SAMPLES, float(self._samples)),
                (BATCHES, float(self._batches)),
                (BATCH_TIME, self._batch_s),
            )
        yield describe_build("serve", "", "")
        for status, count in sorted(statuses.items()):
            yield Sample(REQUESTS, count, (str(status),))
        for metric, value in numbers:
            yield Sample(metric, value)
