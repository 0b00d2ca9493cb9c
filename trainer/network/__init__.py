"""The network, which is built from a ModelConfig message and computes batches forward and backward."""
