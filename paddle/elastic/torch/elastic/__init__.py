"""`hvd.elastic` for PyTorch: states, samplers, and the loop that continues after a failure or a change of hosts."""

from paddle.elastic.elastic import ObjectState, State, run
from paddle.elastic.torch.elastic.sampler import ElasticSampler
from paddle.elastic.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
