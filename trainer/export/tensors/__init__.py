"""Parameters as tensors with the names and shapes of the layers: safetensors, and what PyTorch reads."""
