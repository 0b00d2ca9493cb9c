"""The report of a job: one HTML page from the files of its output, whether it trains, has ended or has failed."""

from trainer.report.writing import write_report

__all__ = ["write_report"]
