"""The config language: a script becomes a TrainerConfig message, and nothing else.

    from trainer.config import parse_config
    config = parse_config("trainer_config.py", "dict_file=./data/dict.txt")

One module per kind of name (`layers/`, `activations`, `attrs`, `optimizers`, `evaluators`, ...) registers what users
can call in `names`. `state.Parse` is what one parse has built so far.
"""

from trainer.config.older_form import as_v0_10
from trainer.config.scripts.parse import parse_args, parse_config, run_config
from trainer.config.text import to_text

__all__ = ["as_v0_10", "parse_args", "parse_config", "run_config", "to_text"]
