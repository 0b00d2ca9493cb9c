"""Training of PyTorch models by all-reduce, with the API of `horovod.torch`."""

try:
    import torch as _torch  # noqa: F401
except ImportError as exc:
    raise ImportError("paddle.elastic.torch needs torch: pip install .[torch]") from exc

from paddle.elastic.torch import elastic

__all__ = ["elastic"]
