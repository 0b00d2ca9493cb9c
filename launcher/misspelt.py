"""Names in a pod's env that resemble a variable of this project, and that no program reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from launcher.text import say
from launcher.variables import VARIABLES

# the variables that only start.sh reads, for the launcher's command line; start.sh --help says what they mean
START_SH = (
    "TRAIN_CONFIG_DIR",
    "TRAIN_CONFIG",
    "DOT_PERIOD",
    "LOG_PERIOD",
    "NUM_PASSES",
    "TRAINER_COUNT",
    "SAVING_PERIOD",
    "LOCAL",
    "USE_GPU",
    "WORK_DIR",
    "SERVICE_ACCOUNT_DIR",
)
# without the variables that Kubernetes sets itself: KUBERNETES_SERVICE_PORT resembles KUBERNETES_SERVICE_HOST
KNOWN = frozenset((*START_SH, *(one.name for one in VARIABLES if not one.name.startswith("KUBERNETES_"))))
LEAST_LETTERS = 8  # a shorter name, such as POD_IPS, may resemble a variable by accident
SIMILARITY = 0.9  # of difflib; NUM_PASES and NUM_PASSES have 0.95, CONF_PADDLE_PORT and PADDLE_PORT have 0.81


def find_misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return, for each name that looks like a misspelt variable, the variable that it resembles most."""
    found: dict[str, str] = {}
    for name in names:
        if name not in KNOWN and len(name) >= LEAST_LETTERS:
            close = difflib.get_close_matches(name, KNOWN, 1, SIMILARITY)
            found.update((name, one) for one in close)
    return found


def warn_of_misspelt(names: Iterable[str]) -> None:
    """Log a warning for each name that looks like a misspelt variable."""
    for name, variable in sorted(find_misspelt(names).items()):
        say(f"WARNING: {name} is set, but no program reads it: did you mean {variable}?")
