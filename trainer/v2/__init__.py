"""The library under `paddle.v2`: layers that are made when a topology needs them, parameters, training and inference.

Source: spec/v2.md; golden/v2/README.md.
"""

import os

from paddle_base.runtime.processor.blas import limit_threads

limit_threads(os.environ, 1, "paddle.v2")  # numpy reads these variables when it is imported
