"""The jobs of `paddle train`: the loop over passes and batches, tests, timing, checkgrad and checkpoints."""
