"""The config language: it turns a configuration script into a TrainerConfig message.

    from trainer.config import parse_config
    config = parse_config("trainer_config.py", "dict_file=./data/dict.txt")

A parse is one execution of a script; `building.state.Parse` holds its state. Each module of the package registers the
functions and classes of one kind (layers, activations, optimisers, evaluators and so on) with `building.names`.
"""

from trainer.config.older_form import as_v0_10
from trainer.config.scripts.parse import parse_args, parse_config, run_config
from trainer.config.text import to_text

__all__ = ["as_v0_10", "parse_args", "parse_config", "run_config", "to_text"]
