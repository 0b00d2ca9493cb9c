"""The pod in which a test starts start.sh."""

from pathlib import Path

import pytest
from script_pod import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)
