"""The server's rule for trainers that train several batches between two pushes (num_batches_per_send_parameter over 1).

Source: AddOptimizer in FirstOrderOptimizer.h of v0.10.
"""

from __future__ import annotations

import numpy as np

from pserver.optim.method import Method, Numbers
from pserver.optim.settings import Steps
from pserver.optim.sgd import momentum

DELTA = "delta"  # configs cannot name this method; trainers choose it for their servers


class Delta(Method):
    """Multiply the sum of the trainers' changes by `delta_add_rate`, and add the product to the values.

    The scheduled rate applies only to weight decay that is separate from the step.
    """

    rule = staticmethod(momentum)
    kernel = "momentum"
    uses_momentum = False
    uses_decay = False
    separates_decay = True

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu and decay of an SGD step that adds g."""
        return np.float32(-self.optimization.delta_add_rate), self.mu, np.float32(0)
