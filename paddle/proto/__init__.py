"""The messages of v0.10 under their old names: `import paddle.proto.ModelConfig_pb2`."""

import sys

from paddle_base.proto import DataConfig_pb2, DataFormat_pb2, ModelConfig_pb2, ParameterConfig_pb2, TrainerConfig_pb2

__all__ = ["DataConfig_pb2", "DataFormat_pb2", "ModelConfig_pb2", "ParameterConfig_pb2", "TrainerConfig_pb2"]
sys.modules.update({f"{__name__}.{name}": globals()[name] for name in __all__})
