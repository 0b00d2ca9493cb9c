"""The data of a network: the outputs of layers, the parameters and their initial values, and the activations."""
