"""The reports of a run while it trains: log lines, progress, records, metrics."""
