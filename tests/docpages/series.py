"""The list of the programs' metrics, from their definitions in the programs."""

from collections.abc import Iterator
from types import ModuleType

from docpages.items import item
from paddle_base.runtime.health.metrics import BUILD, Metric
from paddle_cluster.master import metrics as of_master
from paddle_cluster.master.autoscaler import metrics as of_autoscaler
from pserver.life import health as of_elastic
from pserver.server import server_metrics as of_pserver
from trainer.serving import tally as of_service
from trainer.telemetry import trainer_metrics as of_trainer


def metrics_of(module: ModuleType) -> Iterator[Metric]:
    """Yield the metrics that a module defines, in the order of their definitions; a constant may be a dictionary."""
    for value in vars(module).values():
        values = value.values() if isinstance(value, dict) else (value,)
        yield from (one for one in values if isinstance(one, Metric))


def make_list() -> str:
    """Return the list of all metrics."""
    modules = (of_trainer, of_pserver, of_elastic, of_master, of_autoscaler, of_service)
    return "\n".join(item(describe(one)) for one in (BUILD, *(each for one in modules for each in metrics_of(one))))


def describe(metric: Metric) -> str:
    """Name, kind, labels and meaning of a metric."""
    labels = "".join(f", `{label}`" for label in metric.labels)
    return f"`{metric.name}` ({metric.kind}{labels}): {metric.meaning}"
