"""`paddle train`: config message -> network -> passes and batches -> updater.

The network is built only from the TrainerConfig message; its numerical results are those of the original program,
PaddlePaddle v0.10.
"""
