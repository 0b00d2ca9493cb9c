"""The network: built from a ModelConfig message; it computes batches forward and backward."""
