"""The metrics of both programs as a table, from where the programs define them."""

from pserver import readings as of_pserver
from pserver.metrics import describe_table
from trainer import readings as of_trainer


def make_table() -> str:
    """The whole table."""
    return "\n".join(describe_table(list(dict.fromkeys((*of_trainer.METRICS, *of_pserver.METRICS)))))
