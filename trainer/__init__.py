"""`paddle train`: config message -> network -> passes and batches -> updater.

The network is built from the TrainerConfig message and nothing else; numbers follow the legacy program (v0.10).
"""
