"""The list of evaluators, from the functions of the config language and from what their evaluators print."""

import inspect
import os
import re
from typing import Any

from docpages.items import item
from paddle import trainer_config_helpers
from paddle.trainer_config_helpers import data_layer, outputs, settings
from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.config.building.names import built
from trainer.config.scripts.parse import parse_network_config
from trainer.evaluators import EVALUATORS, Evaluator, make_evaluators
from trainer.evaluators.base import MEASURE

# values for arguments that are not layers
ARGUMENTS = {"result_file": os.devnull, "chunk_scheme": "IOB", "num_chunk_types": 1}
VARIANTS = ({"top_k": 2}, {"positive_label": 0})  # arguments that change what the log shows
ANY_TYPE = "evaluator_base"


def make_list() -> str:
    """Return the list of all evaluators."""
    names = [name for name in built("evaluators") if name != ANY_TYPE]
    with_function = {build(name, {})[0] for name in names}
    others = sorted(EVALUATORS.keys() - with_function)
    return "\n".join(item(one) for one in [*map(describe, names), *map(describe_type, others)])


def describe_type(kind: str) -> str:
    """The same for a type without a function."""
    evaluator = EVALUATORS[kind]
    names = [f"input{number}" for number in range(evaluator.least_inputs)]
    made = evaluator(EvaluatorConfig(name="NAME", type=kind, input_layers=names))
    meaning = (inspect.getdoc(evaluator) or "").partition("\n\n")[0].replace("\n", " ")
    return f"`evaluator_base(type='{kind}')`: {meaning} Log: {list_words(words_of(made))}."


def describe(name: str) -> str:
    """Function, type, meaning, and the words of the log before each number."""
    parameters = inspect.signature(getattr(trainer_config_helpers, name)).parameters
    kind, words = build(name, {})
    meaning = re.sub(r"\s+", " ", inspect.getdoc(getattr(trainer_config_helpers, name)) or "").strip()
    shown = [f"Log: {list_words(words)}." if words else "It has no measure."]
    for variant in VARIANTS:
        if variant.keys() <= parameters.keys():
            said = " and ".join(f"`{key}={value}`" for key, value in variant.items())
            shown.append(f"With {said}: {list_words(build(name, variant)[1])}.")
    return f"`{name}` (`{kind}`): {meaning} {' '.join(shown)}"


def list_words(words: list[str]) -> str:
    """The words of the log as a list in a sentence."""
    return ", ".join(f"`{one}=`" for one in words)


def build(name: str, variant: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the type of an evaluator, and the words that its text has before its numbers."""
    function = getattr(trainer_config_helpers, name)
    required = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    needed = {"input", "label", *required, *ARGUMENTS} & inspect.signature(function).parameters.keys()

    def config() -> None:
        settings(batch_size=1, learning_rate=0.1)
        layers = {one: data_layer(one, 4) for one in sorted(needed - ARGUMENTS.keys())}
        function(**{one: ARGUMENTS.get(one, layers.get(one)) for one in needed}, name="NAME", **variant)
        outputs(list(layers.values()))

    made = make_evaluators(parse_network_config(config).evaluators)[0]
    return made.config.type, words_of(made)


def words_of(evaluator: Evaluator) -> list[str]:
    """Return the words that the text of an evaluator has before its numbers."""
    return [words for words, _ in re.findall(MEASURE, evaluator.text(evaluator.nothing()))]
