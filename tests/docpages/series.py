"""The metrics of the programs as a table, from where the programs define them."""

from master import metrics as of_master
from pserver.life import health as of_elastic
from pserver.server import server_metrics as of_pserver
from runtime.health.metrics import describe_table
from trainer.telemetry import trainer_metrics as of_trainer


def make_table() -> str:
    """The whole table."""
    metrics = (*of_trainer.METRICS, *of_pserver.METRICS, *of_elastic.METRICS, *of_master.METRICS)
    return "\n".join(describe_table(list(dict.fromkeys(metrics))))
