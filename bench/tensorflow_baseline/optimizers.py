"""TensorFlow's kernels of two update rules: one call reads and writes a variable and all of its state."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

Gradients = Sequence[tf.Tensor | tf.IndexedSlices]


def make_zeros(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    return [tf.Variable(tf.zeros_like(one), trainable=False) for one in variables]


class RmsPropKernels:
    """The centred form of RMSProp with rho 0.95; epsilon 1e-6 is added under the root."""

    def __init__(self, variables: Sequence[tf.Variable], rate: float) -> None:
        self._variables, self._rate = variables, rate
        self._means, self._squares, self._momenta = (make_zeros(variables) for _ in range(3))

    def apply(self, gradients: Gradients) -> None:
        states = zip(self._variables, self._means, self._squares, self._momenta, gradients, strict=True)
        for variable, mean, square, momentum, gradient in states:
            tf.raw_ops.ResourceApplyCenteredRMSProp(
                var=variable.handle,
                mg=mean.handle,
                ms=square.handle,
                mom=momentum.handle,
                lr=self._rate,
                rho=0.95,
                momentum=0.0,
                epsilon=1e-6,
                grad=tf.convert_to_tensor(gradient),
            )


class AdamKernels:
    """Adam with the betas 0.9 and 0.999; epsilon 1e-8 is added after the root, before the bias correction."""

    def __init__(self, variables: Sequence[tf.Variable], rate: float) -> None:
        self._variables, self._rate = variables, rate
        self._means, self._squares = (make_zeros(variables) for _ in range(2))
        self._powers = [tf.Variable(1.0, trainable=False) for _ in range(2)]

    def apply(self, gradients: Gradients) -> None:
        powers = [power.assign(power * beta) for power, beta in zip(self._powers, (0.9, 0.999), strict=True)]
        for variable, mean, square, gradient in zip(
            self._variables, self._means, self._squares, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=self._rate,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-8,
                grad=tf.convert_to_tensor(gradient),
            )
