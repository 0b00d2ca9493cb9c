"""The trainer, `paddle train`, builds a network from a config message and trains it pass by pass.

The network is built only from the TrainerConfig message. Its numerical results are those of the original program,
PaddlePaddle v0.10.
"""
