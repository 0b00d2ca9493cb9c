"""The activations of the config language: each object only names an activation, which the network computes."""

from trainer.config.building.names import public


@public("activations")
class BaseActivation:
    """An activation; the message of a layer contains the activation's name.

    Args:
        name: the activation's name, which is the `active_type` in the message of a layer.
        support_hppl: whether lstmemory and grumemory accept the activation as an inner activation.
    """

    def __init__(self, name: str, support_hppl: bool):
        self.name = name
        self.support_hppl = support_hppl

    def __repr__(self) -> str:
        return type(self).__name__ + "()"


class _Named(BaseActivation):
    active_type = ""
    inside_recurrent = False

    def __init__(self) -> None:
        super().__init__(self.active_type, self.inside_recurrent)


@public("activations")
class TanhActivation(_Named):
    """tanh(z)."""

    active_type = "tanh"
    inside_recurrent = True


@public("activations")
class SigmoidActivation(_Named):
    """1 / (1 + exp(-z))."""

    active_type = "sigmoid"
    inside_recurrent = True


@public("activations")
class ReluActivation(_Named):
    """max(0, z)."""

    active_type = "relu"
    inside_recurrent = True


@public("activations", also="LinearActivation")
class IdentityActivation(_Named):
    """The activation that returns z itself; LinearActivation is a second name."""


LinearActivation = IdentityActivation


@public("activations")
class SoftmaxActivation(_Named):
    """exp(z) / sum(exp(z)), where the sum is over the row."""

    active_type = "softmax"


@public("activations")
class SequenceSoftmaxActivation(_Named):
    """Softmax over the frames of a sequence, where each frame has one number."""

    active_type = "sequence_softmax"


@public("activations")
class ExpActivation(_Named):
    """exp(z)."""

    active_type = "exponential"


@public("activations")
class BReluActivation(_Named):
    """min(24, max(0, z))."""

    active_type = "brelu"


@public("activations")
class SoftReluActivation(_Named):
    """log(1 + exp(z)), where z is clipped to [-40, 40]."""

    active_type = "softrelu"


@public("activations")
class STanhActivation(_Named):
    """1.7159 tanh(2/3 z)."""

    active_type = "stanh"


@public("activations")
class AbsActivation(_Named):
    """|z|."""

    active_type = "abs"


@public("activations")
class SquareActivation(_Named):
    """z squared."""

    active_type = "square"


@public("activations")
class LogActivation(_Named):
    """log(z)."""

    active_type = "log"


@public("activations")
class SqrtActivation(_Named):
    """The square root of z."""

    active_type = "sqrt"


@public("activations")
class ReciprocalActivation(_Named):
    """1 / z."""

    active_type = "reciprocal"


@public("activations")
class SoftSignActivation(_Named):
    """z / (1 + |z|)."""

    active_type = "softsign"
