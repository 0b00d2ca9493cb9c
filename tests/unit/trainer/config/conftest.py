"""Writing a config and parsing it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_base.proto import TrainerConfig_pb2
from trainer.config import parse_config

ParseText = Callable[..., TrainerConfig_pb2.TrainerConfig]


@pytest.fixture
def parse_text(config_dir: Path) -> ParseText:
    """Parse the lines of a config after the usual import; it is called config.py."""

    def parse(text: str, config_args: str = "") -> TrainerConfig_pb2.TrainerConfig:
        path = Path("config.py")
        path.write_text(f"from paddle.trainer_config_helpers import *\n{text}\n")
        return parse_config(path, config_args)

    return parse
