"""The report of real jobs, and of hostile ones, in a real browser."""

import json
import re
from urllib.parse import urlparse

import pytest
from report_jobs import LAYERS, Job, failed_job, local_run, unborn_job

from trainer.report import write_report
from trainer.report.writing import write_comparison

WIDE, PHONE = (1200, 900), (360, 740)
HOSTILE = (
    """<script>window.hacked = 1</script></title></style></pre>"'><img src=x onerror=window.hacked=1>&amp;\u202e"""
)
# the elements that have text of their own, with their colours and those behind them
CONTRASTS = """
(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(svg):not(svg *)")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const [one, two] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) found.push(`${element.className} ${element.innerText.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
})()
"""
# tables that are wider than what they stand in, where that does not scroll
WIDER_THAN_ITS_PLACE = """
[...document.querySelectorAll("table, svg, pre")]
  .filter((one) => !one.closest(".scroll") && one.getBoundingClientRect().right > innerWidth)
  .map((one) => one.outerHTML.slice(0, 80))
"""


def show(browser, output, size=WIDE, **taste):
    """Open the report of an output."""
    browser.show(*size, **taste)
    browser.open(f"file://{output / 'report.html'}")


def hostile_job(output):
    """A job whose names and messages are full of markup."""
    job = Job(output)
    layers = [{**one, "name": f"{one['name']}{HOSTILE}", "type": HOSTILE} for one in LAYERS]
    job.start(layers=layers, flags={HOSTILE: HOSTILE}, method={HOSTILE: {HOSTILE: 1}}, config=HOSTILE)
    values = {"cost": 1.0, "evaluators": {HOSTILE: 0.5}, "samples": 3}
    job.record("pass", **{"pass": 0, "batch": 3}, **values, seconds=1.0, usage={HOSTILE: {"compute_seconds": 1.0}})
    job.record("save", **{"pass": 0, "batch": 3}, path=f"javascript:alert(1)//{HOSTILE}")
    job.launch((0.0, HOSTILE))
    return job.fail(0, f"{HOSTILE}\n{HOSTILE}", host=HOSTILE, program=HOSTILE)


def wide_job(output):
    """A job of 120 layers in eight columns."""
    layers = [
        {
            **LAYERS[1],
            "name": f"layer_with_a_long_name_{i}",
            "inputs": [f"layer_with_a_long_name_{i - 8}"],
            "type": "fc",
        }
        for i in range(120)
    ]
    return Job(output).start(layers=layers).run_pass(0)


SAMPLES = {"failed": failed_job, "local": local_run, "unborn": unborn_job, "hostile": hostile_job, "wide": wide_job}


@pytest.fixture(params=SAMPLES)
def sample(request, tmp_path):
    """The output of one of the jobs that were made by hand, with its report."""
    output = tmp_path / "job" / "output"
    SAMPLES[request.param](output)
    write_report(output)
    return output


def test_a_finished_job_has_a_report_that_asks_for_nothing_and_complains_of_nothing(browser, digits_output):
    show(browser, digits_output)
    assert browser.complaints() == []
    assert [urlparse(url).path for url in browser.requests() if not url.startswith("data:")] == [
        str(digits_output / "report.html")
    ]
    assert browser.evaluate("document.querySelector('.state').innerText") == "finished"


def test_a_local_run_shows_the_batch_lines_of_its_log_under_the_pointer(browser, local_output):
    show(browser, local_output)
    assert browser.complaints() == []
    log = (local_output.parent / "train.log").read_text()
    [*_, current] = re.findall(r" Batch=\d+ .*CurrentCost=(\S+)", log)
    chart = browser.evaluate("JSON.stringify(document.querySelector('.chart').getBoundingClientRect())")
    box = json.loads(chart)
    x, y = box["x"] + box["width"] - 1, box["y"] + box["height"] / 2
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    tip = browser.evaluate("document.querySelector('.chart .tip').innerText")
    assert f": {current}\n" in tip
    assert browser.evaluate("!document.querySelector('.chart .tip').hidden")


def test_the_arrow_keys_move_through_a_chart(browser, local_output):
    show(browser, local_output)
    browser.evaluate("document.querySelector('.chart').focus()")
    for _ in range(2):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    tip = browser.evaluate("document.querySelector('.chart .tip').innerText")
    [_, second, *_] = re.findall(r" Batch=\d+ .*CurrentCost=(\S+)", (local_output.parent / "train.log").read_text())
    assert f": {second}\n" in tip


def test_light_and_dark_differ(browser, digits_output, tmp_path):
    show(browser, digits_output)
    light = browser.photograph(tmp_path / "light.png")
    colours = browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    show(browser, digits_output, is_dark=True)
    dark = browser.photograph(tmp_path / "dark.png")
    assert light != dark
    assert colours != browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_all_text_stands_out_from_what_is_behind_it(browser, digits_output, sample, is_dark):
    for output in (digits_output, sample):
        show(browser, output, is_dark=is_dark)
        assert browser.evaluate(CONTRASTS) == []


def test_a_page_is_no_wider_than_a_phone(browser, digits_output, sample):
    for output in (digits_output, sample):
        show(browser, output, PHONE)
        assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert browser.complaints() == []


@pytest.fixture
def compared(sample, digits_output):
    """The page that compares a job of a sample with a real one."""
    return write_comparison([sample, digits_output])


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_at_400_pixels_tables_scroll_in_their_own_place(browser, digits_output, sample, compared, is_dark):
    browser.show(400, 740, is_dark=is_dark)
    for page in (digits_output / "report.html", sample / "report.html", compared):
        browser.open(f"file://{page}")
        assert browser.complaints() == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= 400
        assert browser.evaluate(WIDER_THAN_ITS_PLACE) == []
        assert browser.evaluate(CONTRASTS) == []


def test_a_wide_table_can_be_scrolled_to_its_last_column_and_its_passes_stay_in_view(browser, digits_output):
    show(browser, digits_output, (400, 740))
    place = "document.querySelector('#passes ~ .scroll')"
    assert browser.evaluate(f"{place}.scrollWidth > {place}.clientWidth")
    browser.evaluate(f"{place}.scrollLeft = 10000")
    inside = "((r, p) => r.left >= p.left - 1 && r.right <= p.right + 1)"
    for cell in ("th", "td:last-child"):
        boxes = f"{place}.querySelector('tbody {cell}').getBoundingClientRect(), {place}.getBoundingClientRect()"
        assert browser.evaluate(f"{inside}({boxes})"), cell


def choose_smoothing(browser, value):
    browser.evaluate(
        "(() => { const select = document.querySelector('.smoothing select'); "
        f"select.value = '{value}'; select.dispatchEvent(new Event('change')); }})()"
    )


def test_smoothing_is_off_until_it_is_chosen_and_off_again(browser, local_output):
    show(browser, local_output)
    paths = "JSON.stringify([...document.querySelectorAll('.plot path')].map(p => p.getAttribute('d')))"
    plain = browser.evaluate(paths)
    assert browser.evaluate("document.querySelector('.smoothing').offsetHeight") > 0
    assert browser.evaluate("document.querySelector('.smoothing select').value") == "0"
    choose_smoothing(browser, 0.85)
    assert browser.evaluate("document.querySelectorAll('.smoothed').length") >= 2
    points = browser.evaluate(
        "document.querySelector('.smoothed').getAttribute('d').match(/[\\d.]+ [\\d.]+/g).map(p => +p.split(' ')[1])"
    )
    data = json.loads(browser.evaluate("document.querySelector('.data').textContent"))
    total = weight = 0.0
    for (_, y, *_), shown in zip(data[0]["points"], points, strict=True):
        total, weight = 0.85 * total + y, 0.85 * weight + 1
        assert shown == pytest.approx(500 * (1 - total / weight), abs=0.2)
    choose_smoothing(browser, 0)
    assert browser.evaluate(paths) == plain
    assert browser.complaints() == []


def test_without_script_there_is_no_choice_of_smoothing(browser, local_output):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(browser, local_output)
        assert browser.evaluate("document.querySelector('.smoothing').offsetHeight") == 0
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_no_name_or_message_becomes_markup(browser, tmp_path):
    output = tmp_path / "output"
    hostile_job(output)
    write_report(output)
    show(browser, output)
    assert browser.complaints() == []
    assert browser.evaluate("window.hacked === undefined && document.images.length === 0")
    assert browser.evaluate("document.scripts.length") == 1 + browser.evaluate(
        "document.querySelectorAll('.data').length"
    )
    assert browser.evaluate("[...document.links].every(a => a.protocol == 'file:')")
    assert HOSTILE[:40] in browser.evaluate("document.querySelector('.attempts').textContent")


def test_what_it_says_can_be_read_without_script(browser, digits_output):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(browser, digits_output)
        assert browser.evaluate("document.querySelectorAll('.plot .line').length") >= 4
        assert browser.evaluate("document.querySelector('.legend b').getBoundingClientRect().width") > 0
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_every_picture_and_table_has_a_name(browser, digits_output):
    show(browser, digits_output)
    unnamed = "document.querySelectorAll('svg:not([aria-label]), table:not(:has(caption)), .scroll:not([aria-label])')"
    assert browser.evaluate(f"{unnamed}.length") == 0
    assert browser.evaluate("document.documentElement.lang") == "en"
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
