"""Every kind of page in a real browser: charts have marks, say what they show, fit a phone, and print."""

from __future__ import annotations

import re

import pytest
from browser.webdriver import Browser

import lagsweep as ls
from lagsweep import Engine, LengthLaw, preset_config, read_requests, simulate_engine, write_engine_page
from lagsweep.sweeps.compare.rows import comparison_rows
from lagsweep.sweeps.compare.systems import compare_systems, compared_systems
from lagsweep.sweeps.lab.lab import run_lab
from lagsweep.sweeps.pages.comparison import write_comparison_page
from lagsweep.sweeps.pages.lab import write_lab
from lagsweep.sweeps.pages.report import write_report
from lagsweep.sweeps.pages.sensitivity import write_sensitivity_page
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

pytestmark = pytest.mark.browser

SMALL = {
    "batch_groups": 4,
    "group_size": 4,
    "rollout_workers": 32,
    "response_length": LengthLaw.uniform(20, 120),
    "train_tokens_per_second": 900.0,
    "duration_seconds": 300.0,
    "warmup_seconds": 20.0,
}
KNOBS = {"preset.staleness_threshold": [0.0, 0.25, 0.5], "preset.trigger_parameter_sync_step": [1, 2, 4]}
KINDS = ("knobs", "zipped", "scenarios", "comparison", "engine", "lab", "sensitivity")


def written(axes, folder, **options):
    base = preset_config("verl_fully_async", **SMALL)
    ds = run_spec(make_spec(base, axes, 3, name="pages", **options))
    return write_report(ds, folder / "page.html", images=False).page


@pytest.fixture(scope="module")
def knobs(tmp_path_factory):
    return written(KNOBS, tmp_path_factory.mktemp("knobs"))


@pytest.fixture(scope="module")
def zipped(tmp_path_factory):
    return written([KNOBS], tmp_path_factory.mktemp("zipped"))


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    axes = {"preset.staleness_threshold": [0.0, 0.5], "drift_per_version": [0.1, 0.3]}
    return written(axes, tmp_path_factory.mktemp("scenarios"))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    names = ("areal", "verl_fully_async", "prime_rl", "tinker", "slime_fully_async", "miles", "torchforge")
    systems = compared_systems([(name, {}) for name in names], SMALL)
    ds = compare_systems(systems, 2)
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    return write_comparison_page(ds, comparison_rows(ds), systems, path, workload="Some.", line="lagsweep")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    lines = [f"{k / 10},{20 + k},{60 + 3 * k},{5 + k / 10},{0.1 + k / 10}" for k in range(40)]
    (folder / "log.csv").write_text("arrival_s,prompt_tokens,output_tokens,e2e_s,ttft_s\n" + "\n".join(lines))
    requests = read_requests(folder / "log.csv")
    full = Engine(step_seconds=0.01, step_seconds_per_context_token=1e-6, kv_cache_tokens=400, count=2)
    result = simulate_engine(full, requests.prompt_tokens, requests.output_tokens, requests.arrival_seconds)
    return write_engine_page(folder / "page.html", full, requests, result, line="lagsweep engine show")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return write_lab(tmp_path_factory.mktemp("lab"), "smoke", list(run_lab("smoke")))


@pytest.fixture(scope="module")
def sensitivity(tmp_path_factory):
    axes = {"preset.staleness_threshold": {"from": 0.0, "to": 1.0}, "sync_seconds": {"from": 0.5, "to": 5.0}}
    found = ls.sensitivity(preset_config("verl_fully_async", **SMALL), axes, points=4, seeds=2)
    return write_sensitivity_page(
        found, tmp_path_factory.mktemp("sensitivity") / "page.html", line="lagsweep"
    )


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


def show(browser, page, width=1280, height=900, **options):
    browser.emulate(width, height, **options)
    browser.console()
    browser.open(page)
    browser.wait("document.documentElement.dataset.ready === 'yes' || !document.getElementById('content')")


def marks(browser):
    """Return each chart's marks that can be seen: those of some size, inside the chart."""
    return browser.run(
        """const found = {};
           document.querySelectorAll('.chart').forEach(chart => {
             const box = chart.getBoundingClientRect();
             const kinds = '.mark-symbol path, .mark-rect path, .mark-line path';
             const shown = Array.from(chart.querySelectorAll(kinds))
               .filter(one => one.__data__ && !one.closest('[class*=role-legend]'))
               .filter(one => { const own = one.getBoundingClientRect();
                 return own.width + own.height > 1 && own.right > box.left && own.left < box.right &&
                   own.bottom > box.top && own.top < box.bottom; });
             found[chart.id] = [shown.length, new Set(shown.map(one => one.__data__.datum &&
               one.__data__.datum.cell).filter(cell => cell !== undefined)).size];
           });
           return found;"""
    )


# Sweeps over knobs -----------------------------------------------------------------------------------------


def test_a_sweep_over_two_knobs_draws_every_cell(browser, knobs):
    show(browser, knobs)
    drawn = marks(browser)

    assert drawn["chart-frontier"][1] == 9
    assert drawn["chart-heatmap-0"][1] == 9
    assert set(drawn) >= {"chart-lag", "chart-where-trainer", "chart-differences"}
    assert all(count > 2 for count, _ in drawn.values()), drawn
    assert browser.console() == []


def test_a_sweep_over_knobs_that_go_together_draws_every_point(browser, zipped):
    show(browser, zipped)
    drawn = marks(browser)

    along = [name for name in drawn if name.startswith("chart-along-")]
    assert len(along) == 2
    for name in ["chart-frontier", *along]:
        assert drawn[name][1] == 3, name
    assert all(count > 2 for count, _ in drawn.values()), drawn
    assert browser.console() == []


@pytest.mark.parametrize("kind", ["knobs", "zipped", "scenarios"])
def test_charts_name_a_knob_by_its_last_part_and_nothing_is_undefined(browser, request, kind):
    show(browser, request.getfixturevalue(kind))
    texts = browser.run(
        "return Array.from(document.querySelectorAll('.chart text, .legend')).map(one => one.textContent)"
    )

    assert any("staleness threshold" in text for text in texts)
    assert [text for text in texts if re.search(r"preset\.|undefined|null|NaN", text)] == []


def test_each_scenario_has_a_chart_of_its_own(browser, scenarios):
    show(browser, scenarios)
    drawn = marks(browser)
    titles = browser.run(
        """return ['0', '1'].map(
             k => document.querySelector(`#chart-frontier-${k} .role-title-text`).textContent)"""
    )

    assert titles == ["drift per version 0.1", "drift per version 0.3"]
    assert [drawn[f"chart-frontier-{k}"][1] for k in range(2)] == [2, 2]


# What is read aloud ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_is_one_image_with_its_figures_in_words(browser, request, kind):
    show(browser, request.getfixturevalue(kind))
    browser.devtools("Accessibility.enable")
    nodes = browser.devtools("Accessibility.getFullAXTree")["nodes"]
    images = [
        node["name"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in ("image", "img", "graphics-document")
    ]
    charts = browser.run("return document.querySelectorAll('.chart').length")

    assert len(images) == charts > 0
    assert [name for name in images if not re.search(r"\d", name) or len(name) < 40] == []
    captions = browser.run(
        "return Array.from(document.querySelectorAll('figcaption')).map(one => one.textContent)"
    )
    if kind != "lab":  # whose captions are what is read
        assert set(captions) & set(images) == set()
        assert len(set(images)) == len(images)
    read = " ".join(node["name"]["value"] for node in nodes if node.get("name", {}).get("value"))
    assert "Vega visualization" not in read


def test_a_chart_s_words_follow_the_metric_that_is_chosen(browser, knobs):
    show(browser, knobs)
    words = "return document.getElementById('chart-heatmap-0').getAttribute('aria-label')"
    frontier = browser.run("return document.getElementById('chart-frontier').getAttribute('aria-label')")
    before = browser.run(words)
    browser.run(
        """const chooser = document.getElementById('metric');
           chooser.value = 'mean_expected_normalized_ess';
           document.documentElement.dataset.ready = '';
           chooser.dispatchEvent(new Event('change'));"""
    )
    browser.wait("document.documentElement.dataset.ready === 'yes'")

    assert re.search(r"9 configurations, \d on the frontier: fastest .+ at ESS 0\.\d+; freshest", frontier)
    assert "trained tokens per second over" in before
    assert "expected normalized ESS" in browser.run(words)


# Narrow screens and paper ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_page_is_wider_than_a_phone(browser, request, kind, dark):
    show(browser, request.getfixturevalue(kind), 390, 844, phone=True, dark=dark)

    assert browser.run("return document.documentElement.scrollWidth") <= 390
    outside = browser.run(
        """const kinds = '.chart svg, .chart svg text, td, pre, .legend span, h1, h2, p';
           const shown = document.querySelectorAll(kinds);
           return Array.from(shown).filter(one => !one.closest('.drawn')).filter(one => {
             const box = one.getBoundingClientRect();
             return box.width > 0 && (box.left < -0.5 || box.right > 390.5);
           }).map(one => one.textContent.slice(0, 60))"""
    )
    assert outside == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_page_prints_dark_on_white_within_its_paper(browser, request, kind, dark):
    show(browser, request.getfixturevalue(kind), dark=dark)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.devtools(
        "Emulation.setDeviceMetricsOverride", width=690, height=1000, deviceScaleFactor=1, mobile=False
    )
    browser.devtools("Emulation.setEmulatedMedia", media="print", features=[scheme])
    try:
        assert browser.run("return document.documentElement.scrollWidth") <= 690
        inks = browser.run(
            """const kinds = '.chart .role-axis-label text, h1, td, .legend';
               return Array.from(document.querySelectorAll(kinds)).map(one =>
                  one.tagName === 'text' ? getComputedStyle(one).fill : getComputedStyle(one).color)"""
        )
        assert len(inks) > 5
        assert {ink for ink in inks if sum(map(int, re.findall(r"\d+", ink)[:3])) > 330} == set()
    finally:
        browser.devtools("Emulation.setEmulatedMedia", media="", features=[scheme])
