"""Labels that hold anything draw in a real browser: all charts have marks, no page outgrows its window."""

from __future__ import annotations

import json

import pytest
from browser.webdriver import Browser

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.sweeps.pages.report import write_report
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

pytestmark = pytest.mark.browser

ODD = {
    "a line separator": "a\u2028b\u2029c",
    "control letters": "a\x01b\x1b[31mc\x7f",
    "right to left": "שלום עולם",
    "turned around": "a\u202edcba\u2066x",
    "quotes": "a'b\"c`d\\e",
    "long": "x" * 5000,
}


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_a_page_of_odd_labels_draws_every_chart_within_its_window(browser, tmp_path, name):
    laws = []
    for tokens, end in ((40, "1"), (80, "2"), (120, "3")):
        path, column = tmp_path / f"{end}.jsonl", name + end
        path.write_text("".join(json.dumps({column: count}) + "\n" for count in (tokens, tokens + 9)))
        laws.append(LengthLaw.from_file(path, column))
    base = PipelineConfig(
        rollout_workers=4, batch_tokens=400, train_tokens_per_second=250.0, duration_seconds=120.0
    )
    axes = {"response_length": laws, "max_lag": [0, 1, 3]}
    ds = run_spec(make_spec(base, axes, seeds=4, baseline=True, name="odd"))
    page = write_report(ds, tmp_path / "report.html", images=False).page

    browser.emulate(1280, 900)
    browser.console()
    browser.open(page)
    browser.wait("document.documentElement.dataset.ready === 'yes'")
    charts = browser.run(
        """return Array.from(document.querySelectorAll('.chart')).map(chart => {
             const svg = chart.querySelector('svg');
             return [chart.id, svg ? svg.getBoundingClientRect().width : 0,
                     chart.querySelectorAll('svg .mark-symbol path, svg .mark-rect path').length];
           })"""
    )

    assert len(charts) >= 5
    assert [chart for chart, width, _ in charts if not 100 < width <= 1280] == []
    assert browser.console() == []
    assert browser.run("return document.documentElement.scrollWidth") <= 1280
