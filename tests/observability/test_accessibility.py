"""axe-core over the report of every kind of job, at the widths of a phone and of a desk, light and dark.

`install` fetches axe-core. Where a gradient or a scrolled area keeps it from telling what is behind a text, it measures
no contrast; test_report_page.py measures that of all text outside of pictures, and this file that of pictures.
"""

import json
from pathlib import Path

import pytest
from membership_story import BEGAN, StoryJob
from report_jobs import failed_job, finished_job, local_run, unborn_job

from paddle_cluster.elastic.membership_file import NAME
from trainer.report import write_report
from trainer.report.writing import write_comparison

AXE = Path(__file__).parents[2] / "build/axe/node_modules/axe-core/axe.min.js"
RUN = """
axe.run(document, {resultTypes: ["violations", "incomplete"]}).then((found) => [
  found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(" and ")}`),
  found.incomplete.map((one) => one.id),
  found.passes.length,
])
"""
# the texts of pictures whose colour does not stand out from the page behind them
PALE = """
(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const page = light(parts(getComputedStyle(document.body).backgroundColor));
  return [...document.querySelectorAll("svg text")].map((one) => {
    const own = light(parts(getComputedStyle(one).fill));
    return [one.textContent, (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05)];
  }).filter(([_, ratio]) => ratio < 4.5);
})()
"""


def compared_jobs(output):
    one, other = output / "one", output / "other"
    finished_job(one)
    local_run(other)
    return write_comparison([one, other], None)


def workers_of_a_job(output):
    job = StoryJob()
    job.begin("a", "b")
    job.history.fail(("b", 0), 137, BEGAN + 10)
    job.begin("a", "b", "c", new=("b",))
    output.mkdir(parents=True)
    (output / NAME).write_text(json.dumps(job.record({"status": 0, "reason": ""})))
    return write_report(output)


def page_of(make):
    def write(output):
        make(output)
        return write_report(output)

    return write


PAGES = {
    "finished": page_of(finished_job),
    "failed": page_of(failed_job),
    "local": page_of(local_run),
    "unborn": page_of(unborn_job),
    "compared": compared_jobs,
    "workers": workers_of_a_job,
}


@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_no_violation_and_pictures_have_contrast(browser, tmp_path, kind):
    page = PAGES[kind](tmp_path / "job" / "output")
    for width in (400, 1400):
        for is_dark in (False, True):
            browser.show(width, 900, is_dark=is_dark)
            browser.open(f"file://{page}")
            browser.evaluate(f"{AXE.read_text()}; 0")
            violations, unsure, passes = browser.evaluate(RUN)
            assert violations == [], (width, is_dark)
            assert set(unsure) <= {"color-contrast"} and passes > 20
            assert browser.evaluate(PALE) == [], (width, is_dark)
