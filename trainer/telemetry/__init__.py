"""What a run reports while it trains: log lines, progress, records, metrics."""
