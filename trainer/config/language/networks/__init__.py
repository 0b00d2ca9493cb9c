"""Functions that create networks of several layers, one module per family; importing a module registers its names."""

from trainer.config.language.networks import attention, bidirectional, gru, image, inputs_outputs, lstm, text

__all__ = ["attention", "bidirectional", "gru", "image", "inputs_outputs", "lstm", "text"]
