"""The memory of freed arrays."""

import platform
import subprocess
import sys

import pytest

from paddle_base import kernels

SCRIPT = """
import resource
import numpy as np
from paddle_base import kernels

def touch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(10_000_000, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kernels.keep_memory()
print(touch(), touch(), touch())
"""


@pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is another one")
def test_memory_of_a_freed_array_is_used_again():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    first, *others = map(int, result.stdout.split())
    assert first >= 20  # pages of 2 MB, or many more of 4 KB
    assert min(others) < 10
