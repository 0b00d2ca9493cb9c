"""The list of the programs' metrics, from their definitions in the programs."""

from docpages.items import item
from paddle_base.runtime.health.metrics import Metric
from paddle_cluster.master import metrics as of_master
from paddle_cluster.master.autoscaler import metrics as of_autoscaler
from pserver.life import health as of_elastic
from pserver.server import server_metrics as of_pserver
from trainer.serving import tally as of_service
from trainer.telemetry import trainer_metrics as of_trainer


def make_list() -> str:
    """Return the list of all metrics."""
    masters = (*of_master.METRICS, *of_autoscaler.METRICS)
    metrics = (*of_trainer.METRICS, *of_pserver.METRICS, *of_elastic.METRICS, *masters, *of_service.METRICS)
    return "\n".join(item(describe(one)) for one in dict.fromkeys(metrics))


def describe(metric: Metric) -> str:
    """Name, kind, labels and meaning of a metric."""
    labels = "".join(f", `{label}`" for label in metric.labels)
    return f"`{metric.name}` ({metric.kind}{labels}): {metric.meaning}"
