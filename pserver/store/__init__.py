"""Which service holds which values, and the values themselves with the optimiser's state."""
