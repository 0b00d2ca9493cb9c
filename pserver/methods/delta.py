"""What servers do with the sum of what trainers changed in steps of their own (num_batches_per_send_parameter over 1).

Source: AddOptimizer in FirstOrderOptimizer.h of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pserver import rules
from pserver.methods.base import Method, Steps
from pserver.rules import Array

DELTA = "delta"  # no name of a config: trainers choose it for their servers


class Delta(Method):
    """Adds `delta_add_rate` times the sum. The scheduled rate is only that of the decay, which is always apart."""

    uses_momentum = False
    uses_decay = False
    separates_decay = True

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.sgd(w, g, scratch[0], rate=np.float32(-self.optimization.delta_add_rate), decay=np.float32(0))
