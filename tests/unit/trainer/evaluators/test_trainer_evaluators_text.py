"""Every evaluator on a batch worked out by hand, or by loops over its definition: what it prints."""

import itertools
import math
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from each import each

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer import evaluators
from trainer.arrays.arguments import Argument, Sparse
from trainer.evaluators import EVALUATORS, Evaluator, make_evaluators
from trainer.evaluators.base import evaluates
from trainer.evaluators.validation import Validation

PREDICTIONS = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]], np.float32)
SEVERAL = Sparse(3, np.array([0, 1, 1, 3, 4]), np.array([1, 0, 2, 0]))


def ids(*values, starts=None, sub_starts=None):
    return Argument(ids=np.array(values), starts=positions(starts), sub_starts=positions(sub_starts))


def numbers(*rows, starts=None):
    matrix = np.array(rows, np.float32)
    return Argument(value=matrix.reshape(len(rows), -1), starts=positions(starts))


def positions(values):
    return None if values is None else np.array(values)


def make(kind, inputs, **fields):
    names = [f"input{number}" for number in range(len(inputs))]
    config = EvaluatorConfig(name="NAME", type=kind, input_layers=names, **fields)
    return make_evaluators([config])[0], dict(zip(names, inputs, strict=True))


def text(kind, *batches, **fields):
    """What an evaluator prints of several batches, each a tuple of its inputs."""
    evaluator, _ = make(kind, batches[0], **fields)
    total = evaluator.nothing()
    for batch in batches:
        total += evaluator.measure(make(kind, batch, **fields)[1])
    return evaluator.text(total)


# ----- classification -----

PREDICTION = Argument(value=PREDICTIONS)
IN_SEQUENCES = Argument(value=PREDICTIONS, starts=np.array([0, 2, 2, 4]))


@each(
    ("kind", "inputs", "fields", "expected"),
    [
        ("classification_error", [PREDICTION, ids(1, 1, 2, 0)], {}, "NAME=0.25"),
        ("classification_error", [PREDICTION, ids(1, 1, 2, 1)], {}, "NAME=0.5"),  # the first maximum decides
        ("classification_error", [PREDICTION, ids(0, 0, 0, 0), numbers(2, 1, 0, 1)], {}, "NAME=0.5"),
        ("classification_error", [PREDICTION, ids(2, 2, 0, 2)], {"top_k": 2}, " top_2_error=0.5"),
        ("classification_error", [PREDICTION, ids(2, 2, 0, 2)], {"top_k": 3}, " top_3_error=0"),
        (
            "classification_error",
            [PREDICTION, Argument(sparse=SEVERAL)],
            {"classification_threshold": 0.45},
            "NAME=0.25",
        ),
        (
            "classification_error",
            [PREDICTION, numbers((0, 1, 0), (0, 0, 0), (1, 0, 1), (1, 0, 0))],
            {"classification_threshold": 0.45},
            "NAME=0.75",
        ),
        ("seq_classification_error", [IN_SEQUENCES, ids(1, 1, 2, 0)], {}, "NAME=0.333333"),
        ("seq_classification_error", [IN_SEQUENCES, ids(0, 1, 2, 1)], {}, "NAME=0.666667"),
        ("seq_classification_error", [IN_SEQUENCES, ids(0, 1, 2, 1), numbers(0, 0, 1, 1)], {}, "NAME=0.333333"),
    ],
)
def test_classification(kind, inputs, fields, expected):
    assert text(kind, inputs, **fields) == expected


@pytest.mark.parametrize("kind", ["classification_error", "precision_recall"])
@pytest.mark.parametrize("label", [3, -1])
def test_a_label_beyond_the_prediction_is_a_data_error(kind, label):
    with pytest.raises(DataError, match=r"evaluator NAME: label -?\d+ is not in \[0, 3\)"):
        text(kind, [PREDICTION, ids(label, 0, 0, 0)])


# ----- sums -----


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("sum", [numbers((1, 2), (3, 4), (5, -6))], "NAME=3"),
        ("sum", [numbers((1, 2), (3, 4), (5, -6)), numbers(1, 2, 1)], "NAME=4"),
        ("sum", [ids(4, 1, 4)], "NAME=3"),
        ("sum", [ids(4, 1, 4), numbers(0, 1, 1)], "NAME=2.5"),
        ("sum", [Argument(sparse=SEVERAL)], "NAME=1"),
        ("last-column-sum", [numbers((1, 2), (3, 4), (5, -6))], "NAME=0"),
        ("last-column-sum", [numbers((1, 2), (3, 4), (5, -6)), numbers(1, 1, 0)], "NAME=3"),
    ],
)
def test_sums_are_means_over_the_rows(kind, inputs, expected):
    assert text(kind, inputs) == expected


def test_batches_add_up_and_are_not_averaged():
    assert text("sum", [numbers(1.0)], [numbers(2.0, 6.0)]) == "NAME=3"


# ----- areas -----


def area_by_pairs(score, positive, weight):
    pairs = [(i, j) for i in range(len(score)) for j in range(len(score)) if positive[i] and not positive[j]]
    won = sum(weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j])) for i, j in pairs)
    return won / sum(weight[i] * weight[j] for i, j in pairs)


def test_auc_is_the_share_of_pairs_in_the_right_order_over_all_batches():
    random = np.random.default_rng(3)
    score, label, weight = random.integers(0, 30, 200) / 32, random.integers(0, 3, 200), random.integers(0, 4, 200)
    batches = [
        [numbers(*np.stack([1 - score, score], axis=1)[part]), ids(*label[part]), numbers(*weight[part])]
        for part in (slice(0, 70), slice(70, 200))
    ]
    assert text("last-column-auc", *batches) == f"NAME={area_by_pairs(score, label > 0, weight):g}"
    assert text("last-column-auc", [numbers(0.2, 0.9), ids(0, 1)]) == "NAME=1"
    assert text("last-column-auc", [numbers(0.2, 0.9), ids(1, 1)]) == "NAME=0"


def test_auc_and_pnpair_take_a_label_of_one_number():
    """Many old providers declare labels as dense_vector(1). v0.10's auc cuts them to whole numbers."""
    score, query = numbers(0.2, 0.9, 0.4, 0.3), ids(0, 0, 1, 1)
    assert text("last-column-auc", [score, numbers(0, 1, 0.9, 1)]) == text("last-column-auc", [score, ids(0, 1, 0, 1)])
    same = text("pnpair", [score, ids(0, 1, 0, 1), query])
    assert text("pnpair", [score, numbers(0, 1, 0, 1), numbers(0, 0, 1, 1)]) == same


def test_auc_merges_many_batches_without_losing_any():
    evaluator, outputs = make("last-column-auc", [numbers(*np.linspace(0, 1, 6000)), ids(*np.arange(6000) % 2)])
    total = evaluator.nothing()
    for _ in range(5):
        total += evaluator.measure(outputs)
    one = evaluator.text(evaluator.measure(outputs))
    assert evaluator.text(total) == one
    assert total.merge()[1].sum() == 30000


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan])
def test_auc_refuses_what_is_no_probability(score):
    with pytest.raises(DataError, match=r"evaluator NAME \(last-column-auc\): score \S+ is not in \[0, 1\]"):
        text("last-column-auc", [numbers(0.5, score), ids(0, 1)])


def rank_area(score, click, views):
    """The specification's walk, item by item."""
    area = clicks = clicks_before = missed = missed_sum = 0.0
    last = None
    for i in sorted(range(len(score)), key=lambda i: -score[i]):
        if score[i] != last:
            area += (clicks + clicks_before) * missed / 2
            clicks_before, missed, last = clicks, 0.0, score[i]
        missed += views[i] - click[i]
        missed_sum += missed
        clicks += click[i]
    area += (clicks + clicks_before) * missed / 2
    return area / (clicks * missed_sum) if clicks * missed_sum else 0.0


@pytest.mark.parametrize("ties", [False, True])
def test_rankauc_is_the_mean_of_the_walks_over_sequences(ties):
    random = np.random.default_rng(4)
    score = random.integers(0, 3, 12) if ties else random.permutation(12)
    click, views = random.integers(0, 2, 12), random.integers(1, 4, 12)
    starts = [0, 5, 5, 6, 12]
    areas = [
        rank_area(score[a:b].tolist(), click[a:b].tolist(), views[a:b].tolist()) for a, b in itertools.pairwise(starts)
    ]
    inputs = [numbers(*score, starts=starts), numbers(*click), numbers(*views)]
    assert text("rankauc", inputs) == f"NAME={sum(areas) / 4:g}"


def test_rankauc_counts_one_view_each_unless_told():
    inputs = [numbers(0.9, 0.5, 0.1, starts=[0, 3]), numbers(1, 0, 1)]
    assert text("rankauc", inputs) == f"NAME={rank_area([0.9, 0.5, 0.1], [1, 0, 1], [1, 1, 1]):g}" == "NAME=0.5"


# ----- precision and recall -----


def test_precision_and_recall_of_one_class():
    # predicted 1, 0, 2, 0: class 0 is hit once, taken for once, and missed once
    inputs = [PREDICTION, ids(0, 0, 2, 1)]
    assert (
        text("precision_recall", inputs, positive_label=0) == "positive_label=0 precision=0.5 recall=0.5 F1-score=0.5"
    )
    assert text("precision_recall", inputs, positive_label=1) == "positive_label=1 precision=0 recall=0 F1-score=0"
    assert text("precision_recall", inputs, positive_label=2) == "positive_label=2 precision=1 recall=1 F1-score=1"


def test_precision_and_recall_of_all_classes():
    # of the three classes: precision 1/2, 0, 1; recall 1/2, 0, 1; two of four predictions are right
    assert text("precision_recall", [PREDICTION, ids(0, 0, 2, 1)]) == (
        "macro-average-precision=0.5 macro-average-recall=0.5 macro-average-F1-score=0.5 micro-average-precision=0.5"
    )


def test_a_class_that_never_occurs_has_precision_and_recall_one():
    batch = [PREDICTION, ids(0, 0, 0, 0)]
    assert text("precision_recall", [numbers((1, 0, 0)), ids(0)], positive_label=2) == (
        "positive_label=2 precision=1 recall=1 F1-score=1"
    )
    assert text("precision_recall", batch, positive_label=0) == (
        f"positive_label=0 precision=1 recall=0.5 F1-score={2 / 3:g}"
    )


def test_weights_count_rows_in_precision_and_recall():
    inputs = [PREDICTION, ids(0, 0, 2, 1), numbers(3, 1, 1, 0)]
    assert text("precision_recall", inputs, positive_label=0) == (
        "positive_label=0 precision=1 recall=0.25 F1-score=0.4"
    )


def test_several_labels_a_row_show_the_micro_averages():
    # at 0.45 predicted: {1}, {0}, {2}, {}; labels: {1}, {}, {0, 2}, {0}
    expected = {"P": (1 + 1 + 0) / 3, "R": (1 + 1 + 0) / 3, "p": 2 / 3, "r": 0.5}
    f1 = 2 * expected["p"] * expected["r"] / (expected["p"] + expected["r"])
    assert text("precision_recall", [PREDICTION, Argument(sparse=SEVERAL)], classification_threshold=0.45) == (
        f"macro-average-precision={expected['P']:g} macro-average-recall={expected['R']:g} "
        f"macro-average-F1-score={expected['P']:g} micro-average-precision={expected['p']:g} "
        f"micro-average-recall={expected['r']:g} micro-average-F1-score={f1:g}"
    )


# ----- pairs -----


def test_pnpair_compares_within_a_query_over_all_batches(capsys):
    first = [numbers(0.9, 0.1, 0.5), ids(1, 0, 0), ids(7, 7, 8)]
    second = [numbers(0.2, 0.5, 0.9), ids(2, 1, 1), ids(7, 8, 7)]
    # query 7: (.9,1) (.1,0) (.2,2) (.9,1): right: .9>.1, .2>.1, .9>.1; wrong: .9/.2 twice; query 8: equal scores
    evaluator, _ = make("pnpair", first)
    total = evaluator.nothing()
    for batch, ratio in ((first, "1"), (second, "1.5")):  # a line of the log is written after each
        total += evaluator.measure(make("pnpair", batch)[1])
        assert evaluator.text(total) == f" pos/neg={ratio}"
    evaluator.finish(total)
    assert capsys.readouterr().err.endswith(
        "]  calc total pos pair: 3 calc total neg pair: 2 calc total special pair: 1\n"
    )


def test_pnpair_takes_the_mean_of_both_weights_and_divides_by_one_without_a_wrong_pair():
    inputs = [numbers(0.9, 0.1), ids(1, 0), ids(3, 3), numbers(2, 5)]
    assert text("pnpair", inputs) == " pos/neg=3.5"


# ----- sequences -----


def one_hot(*path, starts):
    return Argument(value=np.eye(4, dtype=np.float32)[list(path)], starts=np.array(starts))


def test_ctc_edit_distance_counts_what_a_best_path_gets_wrong():
    # decoded: [0, 1], [2, 2], []; labels: [0, 1], [1, 2, 0], [1]; blank is 3
    activations = one_hot(0, 0, 3, 1, 2, 3, 2, 3, starts=[0, 4, 7, 8])
    label = ids(0, 1, 1, 2, 0, 1, starts=[0, 2, 5, 6])
    # second: 1 -> 2 is a substitution, then 2 kept, 0 deleted (3 symbols); third: one of one is deleted
    assert text("ctc_edit_distance", [activations, label]) == (
        f"NAME={(2 / 3 + 1) / 3:g}  deletions error={(1 / 3 + 1) / 3:g}  insertions error=0  "
        f"substitutions error={1 / 9:g}  sequences error={2 / 3:g}"
    )


def test_ctc_edit_distance_of_symbols_too_many_and_of_nothing():
    assert text("ctc_edit_distance", [one_hot(0, 1, 2, starts=[0, 3]), ids(1, starts=[0, 1])]) == (
        f"NAME={2 / 3:g}  deletions error=0  insertions error={2 / 3:g}  substitutions error=0  sequences error=1"
    )
    assert text("ctc_edit_distance", [one_hot(3, starts=[0, 1]), ids(starts=[0, 0])]).startswith("NAME=0  ")


# (scheme, types): B-0 I-0 B-1 O ... spelled as tag letters with the type, 'O' for other
TAGS = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "X"}


def tagged(scheme, words, types=2):
    tags = TAGS[scheme]
    return [types * len(tags) if w == "O" else int(w[1:]) * len(tags) + tags.index(w[0]) for w in words.split()]


@pytest.mark.parametrize(
    ("scheme", "words", "starts", "chunks"),
    [
        ("IOB", "B0 I0 O B1 B1 I1", [0, 6], [(0, 1, 0), (3, 3, 1), (4, 5, 1)]),
        ("IOB", "I0 I0 I1 O I1", [0, 5], [(0, 1, 0), (2, 2, 1), (4, 4, 1)]),
        ("IOB", "B0 I0 I0 I0", [0, 2, 2, 4], [(0, 1, 0), (2, 3, 0)]),
        ("IOE", "I0 E0 I0 I1 E1 E1", [0, 6], [(0, 1, 0), (2, 2, 0), (3, 4, 1), (5, 5, 1)]),
        ("IOBES", "B0 I0 E0 S0 S1 B1 O", [0, 7], [(0, 2, 0), (3, 3, 0), (4, 4, 1), (5, 5, 1)]),
        ("plain", "X0 X0 X1 O X1", [0, 5], [(0, 1, 0), (2, 2, 1), (4, 4, 1)]),
        ("IOB", "O O", [0, 2], []),
    ],
)
def test_chunks_of_every_scheme(scheme, words, starts, chunks):
    from trainer.evaluators.chunk import SCHEMES, find_chunks

    found = find_chunks(np.array(tagged(scheme, words)), np.array(starts), SCHEMES[scheme], 2)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == chunks


def test_chunk_compares_ends_and_types_of_decoded_and_true_chunks():
    label = ids(*tagged("IOB", "B0 I0 O B1 I1 B0"), starts=[0, 3, 6])
    decoded = ids(*tagged("IOB", "B0 I0 O B1 O B1"), starts=[0, 3, 6])
    fields = {"chunk_scheme": "IOB", "num_chunk_types": 2}
    assert text("chunk", [decoded, label], **fields) == (
        f"NAME={1 / 3:g} true_chunks=3 result_chunks=3 correct_chunks=1"
    )
    assert text("chunk", [decoded, label], [decoded, label], **fields).endswith("=6 result_chunks=6 correct_chunks=2")
    assert text("chunk", [decoded, label], excluded_chunk_types=[1], **fields) == (
        f"NAME={2 / 3:g} true_chunks=2 result_chunks=1 correct_chunks=1"
    )


def test_a_tag_beyond_the_scheme_is_a_data_error():
    label = ids(5, starts=[0, 1])
    with pytest.raises(DataError, match=r"NAME \(chunk\): id 5 is not in \[0, 4\]"):
        text("chunk", [label, label], chunk_scheme="IOB", num_chunk_types=2)


# ----- detections -----

NEAR, FAR = (0, 0, 2, 2), (10, 10, 12, 12)
SHIFTED = (0, 0, 2, 1.2)  # overlaps NEAR by 0.6


def detected(*rows):
    """Rows (image, class, score, box)."""
    return numbers(*[(image, kind, score, *box) for image, kind, score, box in rows])


def boxes(*rows, starts):
    """Rows (class, box, difficult)."""
    return numbers(*[(kind, *box, difficult) for kind, box, difficult in rows], starts=starts)


def test_detections_are_found_by_overlap_and_each_box_once():
    label = boxes((1, NEAR, 0), (1, FAR, 0), (1, NEAR, 0), starts=[0, 2, 3])
    # by score: hit, second one on the same box, hit in the other image; FAR is never found
    found = detected((0, 1, 0.9, SHIFTED), (0, 1, 0.8, NEAR), (1, 1, 0.7, NEAR))
    # precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3: 1 for 0 to 0.3, 2/3 for 0.4 to 0.6
    expected = 100 * (4 * 1 + 3 * 2 / 3) / 11
    assert text("detection_map", [found, label, label]) == f"Detection mAP={expected:g}"
    assert text("detection_map", [found, label], ap_type="Integral") == f"Detection mAP={100 * (1 / 3 + 2 / 9):g}"
    # SHIFTED is too far off now: precision 0, 1/2, 2/3
    expected = 100 * 7 * (2 / 3) / 11
    assert text("detection_map", [found, label], overlap_threshold=0.7) == f"Detection mAP={expected:g}"


def test_the_mean_is_over_classes_and_the_background_is_none():
    label = boxes((0, FAR, 0), (1, NEAR, 0), (2, NEAR, 0), (3, FAR, 0), starts=[0, 4])
    found = detected((0, 0, 0.9, FAR), (0, 1, 0.9, NEAR), (0, 2, 0.9, FAR), (0, 4, 0.5, FAR))
    # class 3 is never detected and class 4 never there: neither counts
    assert text("detection_map", [found, label]) == "Detection mAP=50"
    assert text("detection_map", [found, label], background_id=2) == "Detection mAP=100"


def test_difficult_boxes_count_only_on_request():
    label = boxes((1, NEAR, 1), (1, FAR, 0), starts=[0, 2])
    found = detected((0, 1, 0.9, NEAR), (0, 1, 0.8, FAR))
    assert text("detection_map", [found, label]) == "Detection mAP=100"
    hard = [detected((0, 1, 0.9, NEAR)), label]
    assert text("detection_map", hard, evaluate_difficult=True, ap_type="Integral") == "Detection mAP=50"


def test_detections_add_up_over_batches():
    label = boxes((1, NEAR, 0), starts=[0, 1])
    hit, miss = [detected((0, 1, 0.5, NEAR)), label], [detected((0, 1, 0.9, FAR)), label]
    assert text("detection_map", hit, miss, ap_type="Integral") == "Detection mAP=25"


# ----- misuse, and nothing at all -----


@each(
    ("kind", "inputs", "fields", "message"),
    [
        ("classification_error", [ids(1), ids(1)], {}, "needs a prediction of numbers, not of ids"),
        ("classification_error", [PREDICTION], {}, "has 1 inputs; it takes 2 to 3"),
        ("classification_error", [PREDICTION, ids(1, 1, 1, 1), PREDICTION], {}, "its weight input must be a dense"),
        ("seq_classification_error", [PREDICTION, ids(1, 1, 1, 1)], {}, "needs sequences as its prediction"),
        ("last-column-auc", [PREDICTION, PREDICTION], {}, "needs a label of ids"),
        ("precision_recall", [PREDICTION, PREDICTION], {}, "needs a label of ids, or sparse binary vectors"),
        (
            "precision_recall",
            [PREDICTION, ids(1, 1, 1, 1)],
            {"positive_label": 3},
            r"positive_label 3 is not in \[0, 3",
        ),
        ("detection_map", [PREDICTION, PREDICTION], {}, "its detections have 3 columns; they must be 7"),
        ("detection_map", [PREDICTION, PREDICTION], {"ap_type": "9point"}, "ap_type '9point' is not one of 11point"),
        ("chunk", [ids(1), ids(1)], {"chunk_scheme": "BIO"}, "chunk_scheme 'BIO' is not one of IOB, IOBES, IOE, plain"),
    ],
)
def test_misuse_names_the_evaluator(kind, inputs, fields, message):
    with pytest.raises(ConfigError, match=f"evaluator NAME .*{message}"):
        text(kind, inputs, **fields)


def test_rows_that_do_not_match_are_a_data_error():
    with pytest.raises(
        DataError,
        match=r"its first input has 4 rows, but its label has 1; .*: pooling_layer",
    ):
        text("classification_error", [PREDICTION, ids(1)])


FIELDS = {"chunk": {"chunk_scheme": "IOB", "num_chunk_types": 1}}


@each("kind", sorted(set(EVALUATORS) - {"seq_text_printer"}))
def test_nothing_measured_prints_without_an_error(kind):
    evaluator, _ = make(kind, [PREDICTION] * EVALUATORS[kind].least_inputs, **FIELDS.get(kind, {}))
    assert evaluator.text(evaluator.nothing()).startswith(
        ("NAME=0", " pos/neg=0", "Detection mAP=0", "macro-average-precision=1")
    )


def test_every_class_of_evaluators_has_a_type():
    """A class that its module's table lacked was noticed by nobody."""
    for module in pkgutil.iter_modules(evaluators.__path__, f"{evaluators.__name__}."):
        import_module(module.name)
    classes = {one for one in Evaluator.__subclasses__() if one.__module__.startswith("trainer.")}
    for one in list(classes):
        classes.update(one.__subclasses__())
    concrete = {one for one in classes if not one.__subclasses__()}
    assert concrete - set(EVALUATORS.values()) == {Validation}  # which a layer makes


def test_two_classes_of_one_type_are_refused():
    with pytest.raises(ValueError, match="two classes evaluate type 'sum': RowSum and "):
        evaluates("sum")(type("OtherSum", (Evaluator,), {}))
    assert EVALUATORS["sum"].__name__ == "RowSum"
