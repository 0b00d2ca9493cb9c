"""The messages of v0.10 under their old names: `import paddle.proto.ModelConfig_pb2`."""

import importlib
import sys

for _name in ("DataConfig_pb2", "DataFormat_pb2", "ModelConfig_pb2", "ParameterConfig_pb2", "TrainerConfig_pb2"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = importlib.import_module(f"proto.{_name}")
