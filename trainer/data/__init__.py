"""Data providers: what their modules import (`provider`), and the batches that the trainer makes of them (`source`)."""
