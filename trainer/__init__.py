"""`paddle train`: it builds a network from a config message, trains it pass by pass, and updates its parameters.

The network is built only from the TrainerConfig message; its numerical results are those of the original program,
PaddlePaddle v0.10.
"""
