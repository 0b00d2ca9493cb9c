"""The report of a job is an HTML page. It is made from the job's output files, during training or later."""

from trainer.report.writing import write_report

__all__ = ["write_report"]
