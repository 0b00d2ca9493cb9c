"""Evaluators, which compute values that the log shows beside the cost, and which do not change the network.

Source: legacy trainer_config_helpers/evaluators.py; spec/config.md section 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer.config.building.argument_errors import set_field, to_float, to_int, to_list, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, input_name, to_layer, to_layers
from trainer.config.building.state import current

_CLASSIFICATION = frozenset(
    {
        "classification_error_evaluator",
        "auc_evaluator",
        "pnpair_evaluator",
        "precision_recall_evaluator",
        "ctc_error_evaluator",
        "chunk_evaluator",
    }
)
_CHUNK_SCHEMES = ("IOB", "IOE", "IOBES", "plain")


def is_for_classification(evaluator: object) -> bool:
    """Return whether classification_cost accepts this function as its evaluator."""
    return callable(evaluator) and getattr(evaluator, "__name__", "") in _CLASSIFICATION


def add_evaluator(
    name: str | None, kind: str, inputs: list[LayerOutput], fields: Mapping[str, Any] | None = None
) -> None:
    """Write an evaluator of the layers `inputs`; fields that are None are left out."""
    parse = current()
    evaluator = parse.model.evaluators.add(name=parse.full_name(to_text("name", name)), type=to_text("type", kind))
    evaluator.input_layers.extend(input_name(layer) for layer in inputs)
    for key, value in (fields or {}).items():
        if value is not None:
            set_field(evaluator, key, value)
    parse.sub_model.evaluator_names.append(evaluator.name)


def _labelled(input: Any, label: Any, weight: Any = None) -> list[LayerOutput]:
    layers = to_layers("input", input)
    if label is not None:
        layers.append(to_layer("label", label))
    if weight is not None:
        layers.append(to_layer("weight", weight))
    return layers


def _maybe(convert: Callable[[str, Any], Any], argument: str, value: Any) -> Any:
    return None if value is None else convert(argument, value)


@helper("evaluators")
def evaluator_base(
    input: Any,
    type: str,
    label: Any = None,
    weight: Any = None,
    name: str | None = None,
    chunk_scheme: str | None = None,
    num_chunk_types: int | None = None,
    classification_threshold: float | None = None,
    positive_label: int | None = None,
    dict_file: str | None = None,
    result_file: str | None = None,
    num_results: int | None = None,
    delimited: bool | None = None,
    top_k: int | None = None,
    excluded_chunk_types: Any = None,
    overlap_threshold: float | None = None,
    background_id: int | None = None,
    evaluate_difficult: bool | None = None,
    ap_type: str | None = None,
) -> None:
    """Add an evaluator of any type; fields that are None are left out."""
    add_evaluator(
        name,
        type,
        _labelled(input, label, weight),
        {
            "chunk_scheme": chunk_scheme,
            "num_chunk_types": num_chunk_types,
            "classification_threshold": classification_threshold,
            "positive_label": positive_label,
            "dict_file": dict_file,
            "result_file": result_file,
            "num_results": num_results,
            "delimited": delimited,
            "top_k": top_k,
            "excluded_chunk_types": None if excluded_chunk_types is None else to_list(excluded_chunk_types),
            "overlap_threshold": overlap_threshold,
            "background_id": background_id,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_type,
        },
    )


@helper("evaluators")
def classification_error_evaluator(
    input: Any,
    label: Any,
    name: str | None = None,
    weight: Any = None,
    top_k: int | None = None,
    threshold: float | None = None,
) -> None:
    """Report the share of samples whose label is not among the top_k ids with the highest scores."""
    add_evaluator(
        name,
        "classification_error",
        _labelled(input, label, weight),
        {"top_k": _maybe(to_int, "top_k", top_k), "classification_threshold": _maybe(to_float, "threshold", threshold)},
    )


@helper("evaluators")
def auc_evaluator(input: Any, label: Any, name: str | None = None, weight: Any = None) -> None:
    """Report the area under the ROC curve, with the last column as the score."""
    add_evaluator(name, "last-column-auc", _labelled(input, label, weight))


@helper("evaluators", renamed={"info": "query_id"})
def pnpair_evaluator(input: Any, label: Any, query_id: Any, weight: Any = None, name: str | None = None) -> None:
    """Report the ratio of correctly ordered to wrongly ordered pairs; the two rows of a pair have the same query."""
    inputs = [*_labelled(input, label), to_layer("query_id", query_id)]
    add_evaluator(name, "pnpair", inputs if weight is None else [*inputs, to_layer("weight", weight)])


@helper("evaluators")
def precision_recall_evaluator(
    input: Any, label: Any, positive_label: int | None = None, weight: Any = None, name: str | None = None
) -> None:
    """Report precision, recall and F1 of one class, or their averages over all classes."""
    add_evaluator(
        name,
        "precision_recall",
        _labelled(input, label, weight),
        {"positive_label": _maybe(to_int, "positive_label", positive_label)},
    )


@helper("evaluators")
def ctc_error_evaluator(input: Any, label: Any, name: str | None = None) -> None:
    """Report the edit distance of decoded sequences to their labels."""
    add_evaluator(name, "ctc_edit_distance", _labelled(input, label))


@helper("evaluators")
def chunk_evaluator(
    input: Any,
    label: Any = None,
    chunk_scheme: str | None = None,
    num_chunk_types: int | None = None,
    name: str | None = None,
    excluded_chunk_types: Any = None,
) -> None:
    """Report the F1 score of the chunks in tagged sequences; the scheme of the tags is IOB, IOE, IOBES or plain.

    In v0.9 the label was the second item of the input.
    """
    if label is None and len(to_list(input)) != 2:
        raise wrong("label", label, "it must be a layer")
    if chunk_scheme not in _CHUNK_SCHEMES:
        raise wrong("chunk_scheme", chunk_scheme, f"it must be one of {', '.join(_CHUNK_SCHEMES)}")
    add_evaluator(
        name,
        "chunk",
        _labelled(input, label),
        {
            "chunk_scheme": chunk_scheme,
            "num_chunk_types": to_int("num_chunk_types", num_chunk_types),
            "excluded_chunk_types": None if excluded_chunk_types is None else to_list(excluded_chunk_types),
        },
    )


@helper("evaluators")
def sum_evaluator(input: Any, name: str | None = None, weight: Any = None) -> None:
    """Sum the values of each row, and report the mean of these sums."""
    add_evaluator(name, "sum", _labelled(input, None, weight))


@helper("evaluators")
def column_sum_evaluator(input: Any, name: str | None = None, weight: Any = None) -> None:
    """Report the mean of the last column."""
    add_evaluator(name, "last-column-sum", _labelled(input, None, weight))


@helper("evaluators")
def detection_map_evaluator(
    input: Any,
    label: Any,
    overlap_threshold: float = 0.5,
    background_id: int = 0,
    evaluate_difficult: bool = False,
    ap_type: str = "11point",
    name: str | None = None,
) -> None:
    """Report the mean average precision of detections; the evaluator's message lists the label twice, as in v0.10."""
    inputs = [*_labelled(input, label), to_layer("label", label)]
    add_evaluator(
        name,
        "detection_map",
        inputs,
        {
            "overlap_threshold": to_float("overlap_threshold", overlap_threshold),
            "background_id": to_int("background_id", background_id),
            "evaluate_difficult": bool(evaluate_difficult),
            "ap_type": to_text("ap_type", ap_type),
        },
    )


@helper("evaluators")
def value_printer_evaluator(input: Any, name: str | None = None) -> None:
    """Log the values of layers, batch by batch."""
    add_evaluator(name, "value_printer", to_layers("input", input))


@helper("evaluators")
def gradient_printer_evaluator(input: Any, name: str | None = None) -> None:
    """Log the gradients of layers, batch by batch."""
    add_evaluator(name, "gradient_printer", to_layers("input", input))


@helper("evaluators")
def maxid_printer_evaluator(input: Any, num_results: int | None = None, name: str | None = None) -> None:
    """Log for each row the ids (column numbers) of the greatest values."""
    add_evaluator(
        name, "max_id_printer", to_layers("input", input), {"num_results": _maybe(to_int, "num_results", num_results)}
    )


@helper("evaluators")
def maxframe_printer_evaluator(input: Any, num_results: int | None = None, name: str | None = None) -> None:
    """Log for each sequence the numbers of the frames with the greatest values."""
    add_evaluator(
        name,
        "max_frame_printer",
        to_layers("input", input),
        {"num_results": _maybe(to_int, "num_results", num_results)},
    )


@helper("evaluators")
def seqtext_printer_evaluator(
    input: Any,
    result_file: str,
    id_input: Any = None,
    dict_file: str | None = None,
    delimited: bool | None = None,
    name: str | None = None,
) -> None:
    """Write sequences of ids to a file, as words of a dictionary.

    `id_input` becomes a parent of the first input, so that outputs() visits `id_input`, too.
    """
    inputs = to_layers("input", input)
    if id_input is not None:
        identity = to_layer("id_input", id_input)
        inputs[0].parents.append(identity)
        inputs = [identity, *inputs]
    add_evaluator(
        name,
        "seq_text_printer",
        inputs,
        {
            "dict_file": _maybe(to_text, "dict_file", dict_file),
            "result_file": to_text("result_file", result_file),
            "delimited": delimited,
        },
    )


@helper("evaluators")
def classification_error_printer_evaluator(
    input: Any, label: Any, threshold: float = 0.5, name: str | None = None
) -> None:
    """Log which samples are classified wrongly."""
    add_evaluator(
        name,
        "classification_error_printer",
        _labelled(input, label),
        {"classification_threshold": to_float("threshold", threshold)},
    )
