"""The dictionaries of a network's data: those that a config gives to its provider, and files that the user names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import MissingInputError, UsageError, reading_error
from trainer.data.provider2 import unpickle_args

MOST_BYTES = 1 << 26  # maximum bytes of a dictionary
_WORDS = ("dict", "vocab")  # parts of the names of arguments and files that are dictionaries


def find_dictionaries(config: TrainerConfig) -> dict[str, str]:
    """Return the text of each dictionary among the arguments of the provider, by the argument's name.

    A dictionary is an object {word: id}, or the path of a text file whose name or argument says so. The text has a word
    a line, in the order of ids; ids that are not 0, 1, ... follow their words, behind a tab.

    Args: config: of a script that this process has run.
    """
    found: dict[str, str] = {}
    for data in (config.test_data_config, config.data_config):
        arguments = unpickle_args(data.load_data_args) if data.type == "py2" and data.load_data_args else None
        if isinstance(arguments, Mapping):
            texts = {str(name): _spell(str(name), value) for name, value in arguments.items()}
            found |= {name: text for name, text in texts.items() if text}
    return found


def _spell(name: str, value: Any) -> str:
    """Return the text of an argument that is a dictionary, else ""."""
    if isinstance(value, Mapping):
        numbered = all(isinstance(word, str) and isinstance(number, int) for word, number in value.items())
        if not value or not numbered:
            return ""
        words = sorted(value, key=lambda word: value[word])
        in_order = [value[word] for word in words] == list(range(len(words)))
        return "".join(f"{word}\n" if in_order else f"{word}\t{value[word]}\n" for word in words)
    if not isinstance(value, str) or not any(word in f"{name} {Path(value).name}".lower() for word in _WORDS):
        return ""
    try:
        return read_text_file(Path(value), MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # the argument names no file
        return ""


def read_dictionaries(model: ModelConfig, given: Sequence[str]) -> dict[str, str]:
    """Return the text of the dictionary file of data layers, by name.

    Args: given: NAME=FILE.
    Raises: UsageError: an item is not of this form, or names no data layer. MissingInputError: a file cannot be read.
    """
    names = [one.name for one in model.layers if one.type == "data"]
    found = {}
    for item in given:
        name, sign, path = item.partition("=")
        if not sign or name not in names:
            raise UsageError(f"--dictionary={item}: write NAME=FILE, with one of the data layers {', '.join(names)}")
        try:
            found[name] = read_text_file(Path(path), MOST_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise reading_error(MissingInputError, f"--dictionary={item} cannot be read", error) from error
    return found
