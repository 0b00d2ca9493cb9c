"""Outputs of layers for samples."""

from trainer.v2.inference import Inference, infer

__all__ = ["Inference", "infer"]
