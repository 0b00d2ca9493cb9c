"""The module layer_math under the name that it had in v0.9."""

from paddle.trainer_config_helpers.layer_math import abs, exp, log, reciprocal, relu, sigmoid, sqrt, square, tanh

__all__ = ["abs", "exp", "log", "reciprocal", "relu", "sigmoid", "sqrt", "square", "tanh"]
