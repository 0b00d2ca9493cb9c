"""What a run tells while it trains: log lines, progress, records, metrics."""
