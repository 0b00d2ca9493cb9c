"""One version in all places."""

import re
from pathlib import Path

from paddle_base.runtime import VERSION

ROOT = Path(__file__).resolve().parents[3]


def test_setup_and_image_have_the_version_of_the_programs():
    assert re.findall(r'version="([^"]+)"', (ROOT / "setup.py").read_text()) == [VERSION]
    assert re.findall(r'image\.version="([^"]+)"', (ROOT / "Dockerfile").read_text()) == [VERSION]
