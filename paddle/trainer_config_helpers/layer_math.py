"""Mathematical functions of layers, called as `layer_math.exp(x)`."""

from trainer.config.language.layer_math import abs, exp, log, reciprocal, relu, sigmoid, sqrt, square, tanh

__all__ = ["abs", "exp", "log", "reciprocal", "relu", "sigmoid", "sqrt", "square", "tanh"]
