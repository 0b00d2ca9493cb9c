"""The division of the values among services, and the values themselves with the optimiser's state."""
