"""What the report draws: thinned curves, axes, charts, the layout of the layers; and markup that stays text."""

import itertools
import math
import re

import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from report_jobs import LAYERS

from trainer.report.charts.axes import count_axis, time_axis, value_axis
from trainer.report.charts.chart import draw_chart
from trainer.report.charts.curves import BUCKETS, Curves, Series, measure_windows, thin
from trainer.report.charts.graph import MOST, connect, draw_graph, read_layers
from trainer.report.charts.layout import find_circles, lay_out, rank
from trainer.report.history import Batches
from trainer.report.html.markup import Markup, breakable, escape, join, tag
from trainer.report.html.text import count, general, moment, percent, rate, seconds, shorten, size, whole

# ----- Text and markup


@each(
    ("shown", "wanted"),
    [
        (general(0.0431588), "0.0431588"),
        (general(1e-7), "1e-07"),
        (general(math.nan), "nan"),
        (general(None), "–"),
        (general("12"), "–"),
        (count(1234567), "1,234,567"),
        (rate(1234.6), "1,235"),
        (rate(0.1234), "0.123"),
        (percent(0.9999), "99 %"),
        (percent(1), "100 %"),
        (seconds(0.1234), "0.12 s"),
        (seconds(59.99), "1 min 00 s"),
        (seconds(3599.8), "1 h 00 min"),
        (seconds(3600 * 26), "1 d 02 h"),
        (seconds(math.inf), "–"),
        (size(512), "512 B"),
        (size(1536), "1.5 KiB"),
        (size(3 * 2**40), "3.0 TiB"),
        (moment(1e30), "–"),
        (shorten("abcdef", 4), "abc…"),
        (str(whole(10**400)), "0"),
        (str(whole(True, 7)), "7"),
    ],
)
def test_numbers_are_shown_as_people_read_them(shown, wanted):
    assert shown == wanted


def test_only_markup_is_markup():
    assert tag("p", "<b>", tag("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert tag("input", hidden=True, disabled=False, max=None) == "<input hidden></input>"
    assert join(["<", Markup("<br>")], ", ") == "&lt;, <br>"
    assert breakable("a_<b") == "a_<wbr>&lt;b"


@settings(deadline=None)  # the machine may be busy
@given(st.text())
def test_escaped_text_has_no_markup_and_can_be_written(text):
    shown = escape(text)
    assert not set(shown) & set("<>\"'")
    assert not re.search("[\x00-\x08\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode()


# ----- Curves and axes


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.floats(), max_size=3000))
def test_a_thinned_curve_keeps_its_ends_and_its_extremes(values):
    points = [(float(x), y) for x, y in enumerate(values)]
    drawn = [point for point in points if abs(point[1]) < 1e100]
    kept = thin(points)
    assert len(kept) <= 2 * BUCKETS + 2
    assert set(kept) <= set(drawn)
    assert kept == sorted(kept)
    if drawn:
        assert (kept[0], kept[-1]) == (drawn[0], drawn[-1])
        assert min(y for _, y in kept) == min(y for _, y in drawn)
        assert max(y for _, y in kept) == max(y for _, y in drawn)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.floats(-1e100, 1e100), min_size=1))
def test_an_axis_has_all_values_between_its_ends_and_ticks_with_different_texts(values):
    axis = value_axis(values)
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in values)
    places = [place for place, _ in axis.ticks]
    assert places == sorted(places)
    assert 2 <= len(axis.ticks) <= 12
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)


@each(
    ("axis", "texts"),
    [
        (value_axis([0.2, 1.9]), ["0", "0.5", "1.0", "1.5", "2.0"]),
        (value_axis([15700, 17100]), ["15500", "16000", "16500", "17000", "17500"]),
        (value_axis([0.0001, 1]), ["0.0001", "0.001", "0.01", "0.1", "1"]),
        (value_axis([3.0]), ["2.6", "2.8", "3.0", "3.2", "3.4"]),
        (count_axis([0.1, 9.5]), ["0", "2", "4", "6", "8", "10"]),
        (count_axis([0.2, 0.9]), ["0", "1"]),
        (time_axis([2.0, 100.0]), ["0", "30 s", "60 s", "90 s"]),
        (time_axis([7300.0]), ["0", "30 min", "60 min", "90 min", "120 min"]),
        (time_axis([86400.0 * 40]), ["0", "10 d", "20 d", "30 d", "40 d"]),
    ],
    ids=range(9),
)
def test_ticks_are_round(axis, texts):
    assert [text for _, text in axis.ticks] == texts


def test_speeds_are_of_windows_of_one_pass_that_are_long_enough():
    batches = Batches()
    rows = [(0, 0.0, 32), (0, 0.1, 64), (0, 0.4, 432), (1, 5.0, 32), (1, 6.0, 132), (1, 6.1, 164)]
    for place, (number, moment_, samples) in enumerate(rows):
        batches.add({"pass": number, "batch": place, "time": moment_, "samples": samples}, 1)
    [points] = measure_windows(batches)
    assert points == [(0.4, pytest.approx(1000)), (6.0, pytest.approx(100))]


def test_a_chart_says_in_words_what_it_shows():
    shown = draw_chart(Curves("cost", "passes done", [Series("pass", "pass", [[(1.0, 2.5), (2.0, 0.5)]])]), "c")
    assert 'aria-label="cost over passes done: pass from 2.5 to 0.5 (lowest 0.5, highest 2.5)"' in shown
    assert "pass <b>0.5</b>" in shown


def test_a_chart_of_a_hostile_name_cannot_end_its_data():
    shown = draw_chart(Curves("a", "passes done", [Series("</script><b>", "pass", [[(1.0, 2.5)]])]), "c")
    assert "</script><b>" not in shown


# ----- The graph of layers

NAMES = [f"n{i}" for i in range(12)]
EDGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda e: e[0] != e[1]), unique=True)


@settings(deadline=None)  # the machine may be busy
@given(EDGES, st.dictionaries(st.sampled_from(NAMES), st.sampled_from("ab")))
def test_every_edge_leads_down_but_those_that_close_a_circle_and_nothing_overlaps(edges, groups):
    widths = {name: 40.0 + 10 * place for place, name in enumerate(NAMES)}
    layout = lay_out(widths, edges, set(), groups, 30.0)
    assert layout.places.keys() == widths.keys()
    assert layout.ways.keys() == set(edges)
    for start, end in edges:
        is_down = layout.places[start][1] < layout.places[end][1]
        assert is_down != ((start, end) in layout.turned)
        assert (layout.ways[start, end][0], layout.ways[start, end][-1]) == (layout.places[start], layout.places[end])
    assert layout.turned <= find_circles(NAMES, edges)
    for name, (x, y) in layout.places.items():
        assert x - widths[name] / 2 >= -1e-6 and x + widths[name] / 2 <= layout.width + 1e-6
        for other, (x2, y2) in layout.places.items():
            assert name == other or y != y2 or abs(x - x2) >= (widths[name] + widths[other]) / 2


def test_a_chain_stands_in_one_column():
    edges = list(itertools.pairwise(NAMES))
    layout = lay_out(dict.fromkeys(NAMES, 50.0), edges, set(), {}, 30.0)
    assert {x for x, _ in layout.places.values()} == {25.0}
    assert layout.turned == set()


def test_a_source_stands_above_its_use_and_not_at_the_top():
    assert rank(["a", "b", "c", "label"], [("a", "b"), ("b", "c"), ("label", "c")]) == {
        "a": 0,
        "b": 1,
        "c": 2,
        "label": 1,
    }


def test_a_memory_is_read_one_step_later():
    layers = read_layers(
        {
            "layers": [
                {"name": "x@g", "type": "scatter_agent", "inputs": ["x"]},
                {"name": "h+delay1@g", "type": "agent", "memory_of": "h@g"},
                {"name": "h@g", "type": "gru_step", "inputs": ["x@g", "h+delay1@g"]},
                {"name": "x", "type": "data"},
                {"name": "h", "type": "gather_agent", "inputs": ["h@g"]},
            ]
        }
    )
    edges, memories = connect(layers)
    assert memories == {("h@g", "h+delay1@g")}
    assert set(edges) == {("x", "x@g"), ("x@g", "h@g"), ("h+delay1@g", "h@g"), ("h@g", "h"), *memories}
    assert str(draw_graph(layers)).count('class="edge back"') == 1


def test_more_layers_than_one_can_follow_are_not_drawn():
    layers = read_layers({"layers": [{**LAYERS[0], "name": f"l{i}"} for i in range(MOST + 1)]})
    assert draw_graph(layers) is None
    assert draw_graph(layers[:MOST]) is not None
    assert draw_graph([]) is None
