"""The data of the network: arguments between layers, parameters, activations, initial values."""
