"""The names of types of numbers."""

import numpy as np
import pytest

from paddle_base.runtime.number_types import number_type


@pytest.mark.parametrize("kind", ["?", "b", "i2", ">i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", ">f8"])
def test_the_name_that_numpy_writes_gives_the_type(kind: str) -> None:
    assert number_type(np.dtype(kind).str) == np.dtype(kind)


@pytest.mark.parametrize("name", ["", ",f4", "(2,)f4", "f1", "i3", "O", "|O8", "S4", "<U1", "c8", "M8", "f4 ", None, 4])
def test_other_names_are_refused(name: object) -> None:
    """numpy parses a name with a comma as Python: a flipped bit in a snapshot was a SyntaxError."""
    with pytest.raises(ValueError, match="type of numbers"):
        number_type(name)
