"""The report of a job: one HTML page, made from the files in its output while the job trains or after it ended."""

from trainer.report.writing import write_report

__all__ = ["write_report"]
