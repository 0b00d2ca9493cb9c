"""The report of a job: an HTML page made from the files in the output of the job, during training or later."""

from trainer.report.writing import write_report

__all__ = ["write_report"]
