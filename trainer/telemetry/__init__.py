"""Report on a run during training: in log lines, in files of progress and records, and in metrics."""
