"""The division of the values among services, the values with the optimiser's state, and the files of this state."""
