"""What flows between layers and what they learn: arguments, parameters, activations, first values."""
