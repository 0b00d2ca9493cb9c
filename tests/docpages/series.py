"""The metrics of the programs as a table, from where the programs define them."""

from master import metrics as of_master
from master.autoscaler import metrics as of_autoscaler
from pserver.life import health as of_elastic
from pserver.server import server_metrics as of_pserver
from runtime.health.metrics import describe_table
from trainer.telemetry import trainer_metrics as of_trainer


def make_table() -> str:
    """The whole table."""
    masters = (*of_master.METRICS, *of_autoscaler.METRICS)
    metrics = (*of_trainer.METRICS, *of_pserver.METRICS, *of_elastic.METRICS, *masters)
    return "\n".join(describe_table(list(dict.fromkeys(metrics))))
