"""The reports of a run during training: log lines, progress, records and metrics."""
