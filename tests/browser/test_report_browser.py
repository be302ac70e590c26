"""The pages in a real browser: they draw, link, fit a phone, keep to themselves, and take text as text."""

from __future__ import annotations

import numpy as np
import pytest
from browser.webdriver import Browser

from lagsweep import (
    Engine,
    LengthLaw,
    PipelineConfig,
    read_requests,
    simulate_engine,
    write_engine_page,
)
from lagsweep.sweeps.compare.rows import comparison_rows
from lagsweep.sweeps.compare.systems import compare_systems, compared_systems
from lagsweep.sweeps.lab.lab import run_lab
from lagsweep.sweeps.pages.comparison import write_comparison_page
from lagsweep.sweeps.pages.lab import write_lab
from lagsweep.sweeps.pages.report import write_report
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

pytestmark = pytest.mark.browser

BASE = {
    "response_length": LengthLaw.uniform(20, 120),
    "rollout_workers": 4,
    "batch_tokens": 400,
    "train_tokens_per_second": 250.0,
    "train_overhead_seconds": 0.2,
    "duration_seconds": 120.0,
    "warmup_seconds": 20.0,
}
AXES = {"queue_cap": [400, 800, 1600], "max_lag": [0, 1, 3], "sync_cadence": [1, 2]}
SMALL = {
    "batch_groups": 4,
    "group_size": 4,
    "rollout_workers": 32,
    "response_length": LengthLaw.uniform(20, 120),
}
SMALL |= {"train_tokens_per_second": 250.0, "warmup_seconds": 20.0}
HOSTILE = "<img src=x onerror='window.hacked=1'>"
HOSTILE_END = "</script><script>window.hacked=2</script>"


@pytest.fixture(scope="module")
def sweep():
    spec = make_spec(PipelineConfig(**BASE), AXES, seeds=8, baseline=True, name="linked")
    return run_spec(spec)


@pytest.fixture(scope="module")
def page(sweep, tmp_path_factory):
    return write_report(
        sweep, tmp_path_factory.mktemp("page") / "report.html", min_ess=0.8, images=False
    ).page


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


def show(browser, page, width=1280, height=900, **options):
    browser.emulate(width, height, **options)
    browser.console()
    browser.requests()
    browser.open(page)
    browser.wait("document.documentElement.dataset.ready === 'yes'")


def highlighted(browser):
    text = browser.run("return document.documentElement.dataset.highlighted || ''")
    return {int(cell) for cell in text.split()}


def lit(browser, chart, mark):
    """Which cells' marks are bright in a chart, by the opacity that is really drawn."""
    script = """
      const found = new Set();
      document.querySelectorAll(`#${arguments[0]} .${arguments[1]} path`).forEach(function (path) {
        const item = path.__data__;
        if (!item || !item.datum || item.datum.cell === undefined) return;
        if (Number(getComputedStyle(path).opacity) > 0.5) found.add(item.datum.cell);
      });
      return Array.from(found);
    """
    return set(browser.run(script, chart, mark))


def place(browser, chart, mark, cell):
    """Where the mark of a cell is, in the viewport, after scrolling there."""
    script = """
      const chart = document.getElementById(arguments[0]);
      chart.scrollIntoView({block: 'center'});
      const paths = Array.from(chart.querySelectorAll(`.${arguments[1]} path`));
      const path = paths.find(one => one.__data__ && one.__data__.datum.cell === arguments[2]);
      const box = path.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];
    """
    return browser.run(script, chart, mark, cell)


def cells_of(sweep):
    return sweep["cell"].values.reshape(-1).tolist()


def test_it_says_nothing_on_the_console_and_fetches_nothing(browser, page):
    show(browser, page)

    assert browser.console() == []
    fetched = [address for address in browser.requests() if not address.startswith(("chrome:", "data:"))]
    assert fetched == [page.resolve().as_uri()]


def test_every_chart_is_drawn(browser, page):
    show(browser, page)
    charts = browser.run(
        """return Array.from(document.querySelectorAll('.chart')).map(chart => {
             const svg = chart.querySelector('svg');
             return [chart.id, svg ? svg.getBoundingClientRect().width : 0,
                     chart.querySelectorAll('.mark-symbol path, .mark-rect path').length];
           })"""
    )

    assert [name for name, _, _ in charts] == [
        "chart-frontier",
        "chart-heatmap-0",
        "chart-heatmap-1",
        "chart-where-trainer",
        "chart-where-slots",
        "chart-where-tokens",
        "chart-lag",
        "chart-differences",
    ]
    assert all(width > 200 and marks > 3 for _, width, marks in charts)


def test_a_box_drawn_with_the_mouse_lights_up_the_same_cells_in_the_other_charts(browser, page, sweep):
    show(browser, page)
    rows = browser.run(
        "return lagsweepReport.views.get('chart-frontier').rows.filter(row => row.cell !== undefined)"
    )
    fastest = max(rows, key=lambda row: row["y"])
    x, y = place(browser, "chart-frontier", "mark-symbol", fastest["cell"])
    browser.drag((x - 25, y - 25), (x + 25, y + 25))
    browser.wait("document.documentElement.dataset.highlighted")

    inside = highlighted(browser)
    assert fastest["cell"] in inside
    assert len(inside) < len(cells_of(sweep))
    tiles = lit(browser, "chart-heatmap-0", "mark-rect") | lit(browser, "chart-heatmap-1", "mark-rect")
    assert tiles == inside
    bars = lit(browser, "chart-where-trainer", "mark-rect")
    assert fastest["cell"] in bars
    assert bars <= inside
    assert browser.run("return document.getElementById('picked').hidden") is False


def test_a_click_on_a_tile_lights_up_its_point_and_escape_clears(browser, page, sweep):
    show(browser, page)
    cell = int(sweep["cell"].sel(queue_cap=800, max_lag=1, sync_cadence=1))
    browser.click(*place(browser, "chart-heatmap-0", "mark-rect", cell))
    browser.wait("document.documentElement.dataset.highlighted")

    assert highlighted(browser) == {cell}
    assert lit(browser, "chart-frontier", "mark-symbol") == {cell}
    assert lit(browser, "chart-heatmap-1", "mark-rect") == set()
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    browser.wait("document.getElementById('picked').hidden")
    assert len(lit(browser, "chart-frontier", "mark-symbol")) > 1


def test_a_row_of_the_table_lights_up_in_the_charts(browser, page):
    show(browser, page)
    cell, x, y = browser.run(
        """const row = document.querySelector('tr[data-cell]');
           row.scrollIntoView({block: 'center'});
           const box = row.getBoundingClientRect();
           return [Number(row.dataset.cell), box.left + 20, box.top + 8];"""
    )
    browser.click(x, y)
    browser.wait("document.documentElement.dataset.highlighted")

    assert lit(browser, "chart-frontier", "mark-symbol") == {cell}
    assert browser.run("return document.querySelectorAll('tr.lit').length") == 1


def test_another_metric_can_be_chosen_for_the_heatmaps(browser, page):
    show(browser, page)
    texts = "return document.querySelector('#chart-heatmap-0 svg').textContent"
    before = browser.run(texts)
    browser.run(
        """const chooser = document.getElementById('metric');
           chooser.value = 'mean_expected_normalized_ess';
           document.documentElement.dataset.ready = '';
           chooser.dispatchEvent(new Event('change'));"""
    )
    browser.wait("document.documentElement.dataset.ready === 'yes'")

    assert browser.run(texts) != before
    assert browser.run("return document.getElementById('scale-high').textContent") == "1.000"
    assert browser.console() == []


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A comparison of systems with long names."""
    named = [("areal", {"max_head_offpolicyness": 1}), ("areal", {}), ("verl_fully_async", {})]
    systems = compared_systems(named, {**SMALL, "duration_seconds": 400.0})
    ds = compare_systems(systems, 2)
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    return write_comparison_page(ds, comparison_rows(ds), systems, path, workload="Some.", line="lagsweep")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return write_lab(tmp_path_factory.mktemp("lab"), "smoke", list(run_lab("smoke")))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Two engines so full that rollouts are preempted, with requests of a hostile name."""
    folder = tmp_path_factory.mktemp("engine")
    lines = [f"{k / 10},{20 + k},{60 + 3 * k},{5 + k / 10},{0.1 + k / 10}" for k in range(40)]
    log = folder / f"{HOSTILE.replace('/', '')}.csv"
    log.write_text("arrival_s,prompt_tokens,output_tokens,e2e_s,ttft_s\n" + "\n".join(lines))
    requests = read_requests(log)
    full = Engine(step_seconds=0.01, step_seconds_per_context_token=1e-6, kv_cache_tokens=400, count=2)
    result = simulate_engine(full, requests.prompt_tokens, requests.output_tokens, requests.arrival_seconds)
    assert result.totals["preemptions"] > 0
    return write_engine_page(folder / "engine.html", full, requests, result, line="lagsweep engine show")


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """A report of a sweep with engines that preempt."""
    engine = Engine(count=2, step_seconds=0.01, kv_cache_tokens=300)
    base = PipelineConfig(**BASE, engine=engine, prompt_tokens=30, max_queue_tokens=None)
    ds = run_spec(make_spec(base, {"engine.max_running": [1, 4], "max_lag": [1, 3]}, seeds=2))
    page = tmp_path_factory.mktemp("engines") / "report.html"
    return write_report(ds, page, min_ess=0.5, images=False).page


def test_a_report_draws_its_engines_over_time(browser, engines):
    show(browser, engines)
    ids = browser.run("return Array.from(document.querySelectorAll('.chart'), one => one.id)")
    drawn = "return document.querySelectorAll('.chart[data-drawn=yes] svg').length"

    assert {"chart-engines-1-load", "chart-engines-1-cache"} <= set(ids)
    assert browser.run(drawn) == len(ids)
    assert browser.console() == []


def test_an_engine_s_page_draws_every_chart_keeps_to_itself_and_takes_text_as_text(browser, engine):
    show(browser, engine)
    drawn = browser.run("return document.querySelectorAll('.chart[data-drawn=yes] svg').length")

    assert drawn == browser.run("return document.querySelectorAll('.chart').length") == 8
    assert browser.run("return window.hacked === undefined && document.querySelector('img') === null")
    assert HOSTILE.replace("/", "") in browser.run("return document.querySelector('h1').textContent")
    assert browser.console() == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in browser.requests())


def test_a_row_of_the_comparison_lights_up_in_its_charts(browser, comparison):
    show(browser, comparison)
    x, y = browser.run(
        """const row = document.querySelector('tr[data-cell="2"]');
           row.scrollIntoView({block: 'center'});
           const box = row.getBoundingClientRect();
           return [box.left + 20, box.top + 8];"""
    )
    browser.click(x, y)
    browser.wait("document.documentElement.dataset.highlighted")

    assert lit(browser, "chart-frontier", "mark-symbol") == {2}
    assert browser.run("return document.querySelector('#picked span').textContent") == "verl_fully_async"
    assert browser.console() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ["page", "comparison", "engine", "engines"])
def test_a_phone_never_scrolls_sideways_and_no_chart_sticks_out(browser, request, kind, dark):
    show(browser, request.getfixturevalue(kind), 390, 844, phone=True, dark=dark)

    assert browser.run("return document.documentElement.scrollWidth") <= 390
    assert browser.run("return document.body.scrollWidth") <= 390
    outside = browser.run(
        """const shown = document.querySelectorAll('.chart svg, .chart svg text, td, pre');
           return Array.from(shown).filter(one => {
             const box = one.getBoundingClientRect();
             return box.width > 0 && (box.left < -0.5 || box.right > 390.5);
           }).map(one => one.textContent.slice(0, 60))"""
    )
    assert outside == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_lab_s_page_fits_a_phone_and_its_drawings_have_the_page_s_ink(browser, lab, dark):
    browser.emulate(390, 844, phone=True, dark=dark)
    browser.open(lab)

    assert browser.run("return document.documentElement.scrollWidth") <= 390
    same = """const text = document.querySelector('.chart text');
              return getComputedStyle(text).fill === getComputedStyle(document.body).color"""
    assert browser.run(same)
    assert browser.console() == []


def test_the_page_follows_the_reader_from_light_to_dark(browser, page):
    show(browser, page)
    ink = """const text = document.querySelector('#chart-lag text');
             return [getComputedStyle(document.body).color, text.getAttribute('fill')];"""
    light = browser.run(ink)
    browser.run("document.documentElement.dataset.ready = ''")
    browser.emulate(1280, 900, dark=True)
    browser.wait("document.documentElement.dataset.ready === 'yes'")

    dark = browser.run(ink)
    assert dark[0] != light[0]
    assert dark[1] != light[1]


def test_text_of_the_user_stays_text(browser, sweep, tmp_path):
    spec = make_spec(PipelineConfig(**BASE), {"max_lag": [0, 1]}, seeds=2, name="x")
    ds = run_spec(spec)
    ds.attrs["spec"] = spec.replace(name=HOSTILE).to_json()
    status, reason = ds["status"].values.copy(), np.full(ds["status"].shape, "", dtype="U80")
    status[0, 0], reason[0, 0] = 2, HOSTILE_END
    ds["status"] = (ds["status"].dims, status)
    ds["reason"] = (ds["status"].dims, reason)
    show(browser, write_report(ds, tmp_path / "report.html", images=False).page)

    assert browser.run("return window.hacked === undefined && document.querySelector('img') === null")
    assert browser.run("return document.querySelector('h1').textContent") == HOSTILE
    assert browser.run("return document.body.textContent").count(HOSTILE_END) >= 1
    assert browser.run("return document.title") == f"{HOSTILE} · lagsweep report"
    assert browser.console() == []
