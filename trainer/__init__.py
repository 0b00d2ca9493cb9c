"""`paddle train`: config message -> network -> passes and batches -> updater.

The network is built only from the TrainerConfig message; numerical results follow the legacy program (v0.10).
"""
