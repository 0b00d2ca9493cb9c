"""Poolings: how the values of a sequence, or of a window of a map, are reduced to a single value.

Source: legacy trainer_config_helpers/poolings.py; spec/config.md section 8.
"""

from trainer.config.building.names import public


@public("poolings")
class BasePoolingType:
    """A pooling; the message of a layer contains the pooling's name."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return type(self).__name__ + "()"


@public("poolings")
class MaxPooling(BasePoolingType):
    """The maximum. With output_max_index, the result for a sequence is the index of the frame with the maximum."""

    def __init__(self, output_max_index: bool | None = None):
        super().__init__("max")
        self.output_max_index = output_max_index


@public("poolings")
class AvgPooling(BasePoolingType):
    """The mean; `strategy` can select the sum, or the sum divided by the square root of the number of values."""

    STRATEGY_AVG = "average"
    STRATEGY_SUM = "sum"
    STRATEGY_SQROOTN = "squarerootn"

    def __init__(self, strategy: str = STRATEGY_AVG):
        super().__init__("average")
        self.strategy = strategy


@public("poolings")
class SumPooling(AvgPooling):
    """The sum over a sequence."""

    def __init__(self) -> None:
        super().__init__(AvgPooling.STRATEGY_SUM)


@public("poolings")
class SquareRootNPooling(AvgPooling):
    """The sum over a sequence, divided by the square root of the sequence's length."""

    def __init__(self) -> None:
        super().__init__(AvgPooling.STRATEGY_SQROOTN)


@public("poolings")
class MaxWithMaskPooling(BasePoolingType):
    """The maximum of a window of a map, and the position of the maximum."""

    def __init__(self) -> None:
        super().__init__("max-pool-with-mask")


@public("poolings")
class CudnnMaxPooling(BasePoolingType):
    """The maximum of a window of a map, as cuDNN computes it."""

    def __init__(self) -> None:
        super().__init__("cudnn-max-pool")


@public("poolings")
class CudnnAvgPooling(BasePoolingType):
    """The mean of a window of a map, excluding the padding, as cuDNN computes it."""

    def __init__(self) -> None:
        super().__init__("cudnn-avg-pool")


@public("poolings")
class CudnnAvgInclPadPooling(BasePoolingType):
    """The mean of a window of a map, including the padding, as cuDNN computes it."""

    def __init__(self) -> None:
        super().__init__("cudnn-avg-incl-pad-pool")
