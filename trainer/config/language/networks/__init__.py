"""Functions that create networks of several layers; the import of a module registers the names of its functions."""

from trainer.config.language.networks import attention, bidirectional, gru, image, inputs_outputs, lstm, text

__all__ = ["attention", "bidirectional", "gru", "image", "inputs_outputs", "lstm", "text"]
