"""The jobs of `paddle train`: training, tests, timing and checkgrad. Training makes saves and checkpoints."""
