"""The report: verdict first, all inside one file, honest about what is missing, of any shape of sweep."""

from __future__ import annotations

import contextlib
import html
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from click.testing import CliRunner
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up
from oracle.small_sweeps import small_base

from lagsweep import LengthLaw, run_sweep
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.report_command import command
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.pages.figures import report_charts
from lagsweep.sweeps.pages.page import embedded_script
from lagsweep.sweeps.pages.report import write_report
from lagsweep.sweeps.presets.registry import preset_config
from lagsweep.sweeps.spec.design import sampled_group
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

AXES = {"queue_cap": [200, 400], "max_lag": [0, 1, 3], "sync_cadence": [1, 2]}


class Page(HTMLParser):
    """What a page holds: headings, texts, the addresses it names, the tags it has."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.headings, self.text, self.tags, self.addresses, self.data = [], [], [], [], ""
        self._open = []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self._open.append((tag, dict(attrs)))
        self.tags.append((tag, dict(attrs)))
        self.addresses += [
            value for name, value in attrs if name in ("src", "href", "srcset", "action", "poster")
        ]

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attrs = self._open[-1] if self._open else ("", {})
        if attrs.get("id") == "content":
            self.data += data
        elif tag in ("h1", "h2"):
            self.headings.append(data)
        elif tag not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def content(self):
        return json.loads(self.data)


@pytest.fixture(scope="module")
def sweep():
    return run_spec(make_spec(small_base(), AXES, 5, baseline=True, name="pages"))


@pytest.fixture(scope="module")
def report(sweep, tmp_path_factory):
    return write_report(sweep, tmp_path_factory.mktemp("page") / "report.html", min_ess=0.8)


def test_an_observer_is_told_what_is_read_and_drawn(sweep, tmp_path):
    class Watch(Progress):
        def __init__(self):
            self.taken = {}

        @contextlib.contextmanager
        def steps(self, what, total):
            self.taken[what] = [0, total]

            def step():
                self.taken[what][0] += 1

            yield step

    watch = Watch()
    made = write_report(sweep, tmp_path / "told.html", progress=watch)

    assert list(watch.taken) == ["variables read", "charts drawn"]
    assert all(taken == total > 2 for taken, total in watch.taken.values())
    assert 2 * watch.taken["charts drawn"][0] == len(made.images)
    with pytest.raises(ConfigError, match="progress: must be a function"):
        write_report(sweep, tmp_path / "told.html", progress="loud")


@pytest.fixture(scope="module")
def page(report):
    return Page(report.page.read_text(encoding="utf-8"))


def page_of(ds, tmp_path, **options):
    return Page(write_report(ds, tmp_path / "report.html", images=False, **options).page.read_text("utf-8"))


# The file --------------------------------------------------------------------------------------------------


def test_the_page_names_no_address_and_forbids_itself_the_network(report, page):
    assert page.addresses == []
    policy = next(
        attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    styles = re.findall(r"<style>(.*?)</style>", report.page.read_text("utf-8"), re.S)
    assert not any("url(" in style or "@import" in style for style in styles)


def test_the_page_is_small_and_has_three_scripts(report, page):
    assert report.bytes < 2_500_000
    assert report.bytes == report.page.stat().st_size
    assert [tag for tag, _ in page.tags].count("script") == 3


def test_the_verdict_comes_first_then_the_sections_in_order(page):
    assert page.headings == [
        "pages",
        "The frontier",
        "Throughput against freshness",
        "The whole grid",
        "Where time and tokens go",
        "How old the trained rollouts were",
        "Differences from the sequential baseline",
        "Failures",
        "Provenance",
        "Commands",
    ]
    verdict, frontier = (
        page.words.index("Largest trained_tokens_per_second"),
        page.words.index("± is the half width"),
    )
    assert verdict < frontier


def test_the_verdict_is_the_recommendation(sweep, page):
    best = gather(sweep, min_ess=0.8).best

    assert f"queue_cap={best.settings['queue_cap']} max_lag={best.settings['max_lag']}" in page.words
    assert "at ESS" in page.words
    assert "Trained tokens per second against the sequential baseline: +" in page.words
    assert "an assumption, not a measurement" in page.words
    assert "enforced by discarding only" in page.words
    assert "disaggregated" in page.words


def test_the_same_sweep_gives_the_same_bytes(sweep, report, tmp_path):
    again = write_report(sweep, tmp_path / "report.html", min_ess=0.8)

    assert again.page.read_bytes() == report.page.read_bytes()
    for one, other in zip(report.images, again.images, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_each_chart_lies_beside_the_page_as_png_and_svg(report):
    folder = report.page.parent / "report-charts"
    names = ["frontier", "heatmap", "where-trainer", "where-slots", "where-tokens", "lag", "differences"]

    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert all(path.read_text("utf-8").startswith("<svg") for path in folder.glob("*.svg"))
    assert set(report.images) == set(folder.iterdir())


def test_the_data_in_the_page_are_the_means(sweep, page):
    content = page.content()
    (frontier,) = [chart for chart in content["charts"] if chart["id"] == "chart-frontier"]
    number = _table_of(frontier["variants"][""])
    table = content["tables"][number]
    rows = [dict(zip(table["fields"], values)) for values in zip(*table["columns"])]
    mean = sweep[THROUGHPUT].mean("seed").values.reshape(-1)
    by_cell = dict(zip(sweep["cell"].values.reshape(-1).tolist(), mean))

    assert len(rows) > 8
    assert all(row["y"] == pytest.approx(by_cell[row["cell"]], rel=1e-6) for row in rows)


def _table_of(spec):
    if isinstance(spec, dict):
        if isinstance(spec.get("data"), dict) and "table" in spec["data"]:
            return spec["data"]["table"]
        spec = list(spec.values())
    if isinstance(spec, list):
        for part in spec:
            found = _table_of(part)
            if found is not None:
                return found
    return None


def test_every_linked_chart_listens_and_most_can_be_picked_in(page):
    for chart in page.content()["charts"]:
        for spec in chart["variants"].values():
            names = {param["name"] for param in _params(spec)}
            assert "highlight" in names, chart["id"]
            if chart["id"] != "chart-lag":
                assert "picked" in names, chart["id"]
    assert "brush" in {
        param["name"]
        for chart in page.content()["charts"]
        if chart["id"] == "chart-frontier"
        for param in _params(chart["variants"][""])
    }


def _params(spec):
    yield from spec.get("params", [])
    for layer in spec.get("layer", []):
        yield from _params(layer)


def test_rows_of_the_table_carry_their_cells(sweep, page):
    cells = {int(attrs["data-cell"]) for tag, attrs in page.tags if tag == "tr" and "data-cell" in attrs}

    assert cells <= set(sweep["cell"].values.reshape(-1).tolist())
    assert len(cells) >= 3


# Escaping --------------------------------------------------------------------------------------------------

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"


def test_texts_of_a_user_are_escaped_everywhere(tmp_path):
    spec = make_spec(small_base(), {"max_lag": [0, 1]}, 2, constraints=["max_lag < 9"])
    ds = run_spec(spec)
    ds.attrs["spec"] = spec.replace(name="<img src=x>").to_json()
    ds["status"][0, 0] = 2
    reason = np.full(ds["status"].shape, "", dtype="U80")
    reason[0, 0] = HOSTILE
    ds["reason"] = (ds["status"].dims, reason)
    source = write_report(ds, tmp_path / "report.html", images=False).page.read_text("utf-8")
    page = Page(source)

    assert "img" not in [tag for tag, _ in page.tags]
    assert page.headings[0] == "<img src=x>"
    assert HOSTILE in page.words
    assert "<img" not in source.partition('<script type="application/json"')[0]
    assert [tag for tag, _ in page.tags].count("script") == 3


def test_laws_named_by_a_user_are_escaped_in_data_and_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "<b>rl & co<b>.csv"
    (tmp_path / name).write_text("tokens\n" + "\n".join(str(20 + k) for k in range(40)))
    laws = [LengthLaw.from_file(name, column="tokens"), LengthLaw.fixed(50)]
    ds = run_sweep(small_base(), {"response_length": laws, "max_lag": [0, 1]}, 2)
    source = write_report(ds, tmp_path / "report.html", images=False).page.read_text("utf-8")

    page = Page(source)
    assert "b" not in [tag for tag, _ in page.tags]
    assert page.content()["charts"]


def test_a_script_cannot_end_its_element():
    assert "</script" not in embedded_script("a</script>b<!--c")
    assert embedded_script("a < b") == "a < b"


# States and shapes -----------------------------------------------------------------------------------------


def test_an_unfinished_sweep_says_so_at_the_top(sweep, tmp_path):
    part = sweep.copy(deep=True)
    part["status"][1] = 0
    part.attrs["complete"] = False
    page = page_of(part, tmp_path)

    assert "This sweep is incomplete: 30 runs are missing. All figures are of what is done." in page.words
    assert "Runs: 30 not run." in page.words
    assert ("div", {"class": "banner"}) in page.tags


def test_failures_and_excluded_cells_are_listed(tmp_path):
    ds = run_spec(make_spec(small_base(), AXES, 3, constraints=["queue_cap >= 200 * sync_cadence"]))
    ds["status"][1, 2, 0, 1] = 2
    reason = np.full(ds["status"].shape, "", dtype="U80")
    reason[1, 2, 0, 1] = "out of memory"
    ds["reason"] = (ds["status"].dims, reason)
    page = page_of(ds, tmp_path)

    assert "Runs: 1 failed, 9 excluded." in page.words
    assert "Left out: 3 cells break a constraint: queue_cap >= 200 * sync_cadence." in page.words
    assert "1 × out of memory" in page.words
    assert "queue_cap=400 max_lag=3 sync_cadence=1" in page.words


def test_one_seed_is_said_to_have_no_intervals(sweep, tmp_path):
    page = page_of(run_sweep(small_base(), AXES, 1), tmp_path)

    assert "One seed: there are no intervals, and nothing can be told apart." in page.words


def test_a_sweep_with_no_answer_says_what_comes_nearest(tmp_path):
    page = page_of(run_sweep(small_base(), {"max_lag": [1, 2]}, 3), tmp_path, min_ess=0.9999)

    assert "This sweep has no answer." in page.words
    assert "min_ess = 0.9999: the nearest setting, max_lag=1, has ESS" in page.words


LAWS = [LengthLaw.uniform(20, 80), LengthLaw.fixed(50)]
SHAPES = {
    "no axis": {},
    "one axis": {"max_lag": [0, 1, 2]},
    "an axis of words": {"admission": ["threshold", "reserve"]},
    "laws": {"response_length": LAWS, "max_lag": [0, 2]},
    "five axes": {
        "max_lag": [0, 2],
        "queue_cap": [200, 600],
        "sync_cadence": [1, 2],
        "rollout_workers": [2, 3],
        "admission": ["threshold", "reserve"],
    },
    "points": [
        sampled_group(
            {"max_lag": {"from": 0, "to": 4}, "train_tokens_per_second": {"from": 50.0, "to": 200.0}},
            method="latin_hypercube",
            points=8,
        )
    ],
}


@pytest.mark.parametrize("axes", SHAPES.values(), ids=SHAPES)
def test_any_shape_of_sweep_has_a_report(axes, tmp_path):
    ds = run_spec(make_spec(small_base(), axes, 3, baseline=True))
    page = page_of(ds, tmp_path, min_ess=0.5)

    charts = {chart["id"] for chart in page.content()["charts"]}
    scenarios = isinstance(axes, dict) and "response_length" in axes
    first = {"chart-frontier-0", "chart-frontier-1"} if scenarios else {"chart-frontier"}
    assert first | {"chart-where-trainer", "chart-lag"} <= charts
    places = {attrs["id"] for tag, attrs in page.tags if attrs.get("class") == "chart"}
    assert places == charts


def test_a_sweep_in_which_nothing_is_trained_has_one_too(tmp_path):
    page = page_of(
        run_sweep(small_base(batch_tokens=1000), {"queue_cap": [10, 20]}, 2), tmp_path, min_ess=0.9
    )

    assert "No configuration trained a batch." in page.words
    assert "This sweep has no answer." in page.words


def test_runs_of_the_general_engine_show_their_causes(tmp_path):
    base = small_base(publication="pause", group_size=2, batch_tokens=None, batch_groups=2)
    page = page_of(run_sweep(base, {"max_lag": [0, 2]}, 3), tmp_path, min_ess=0.5)

    assert "idle: publication" in page.words
    assert "enforced by discarding only" not in page.words


def test_a_knob_is_an_axis_of_the_charts(tmp_path):
    changes = {"batch_groups": 2, "group_size": 2, "rollout_workers": 8, "duration_seconds": 300}
    ds = run_sweep(
        preset_config("areal", **changes),
        {"preset.max_head_offpolicyness": [0, 2], "rollout_workers": [8, 16]},
        3,
    )
    page = page_of(ds, tmp_path, min_ess=0.5)
    content = page.content()

    fields = {name for table in content["tables"] for name in table["fields"]}
    used = set(re.findall(r'"field": "([^"]+)"', json.dumps(content["charts"])))  # a dot: a part of a value
    assert "preset_max_head_offpolicyness" in fields
    assert not [name for name in fields | used if "." in name]
    assert "max head offpolicyness" in page.words


def test_a_reference_of_ones_own_takes_the_place_of_the_baseline(sweep, tmp_path):
    page = page_of(sweep, tmp_path, reference={"queue_cap": 400, "max_lag": 3, "sync_cadence": 1})

    assert "Differences from cap 400, lag ≤ 3, sync 1" in page.headings


def test_without_a_baseline_the_choice_is_the_reference(tmp_path):
    assert "Differences from the choice" in page_of(run_sweep(small_base(), AXES, 3), tmp_path).headings


def test_differences_are_scipys_paired_intervals(sweep):
    from scipy import stats

    content = gather(sweep)
    for one in content.differences:
        values = sweep[one.metric].values.reshape(-1, 5)[one.shown.place]
        other = sweep[f"baseline_{one.metric}"].values
        interval = stats.ttest_rel(values, other).confidence_interval(0.95)
        scale = other.mean()
        assert (one.low, one.high) == pytest.approx((interval.low / scale, interval.high / scale))


def test_many_cells_become_a_page_of_bounded_size(tmp_path):
    rng = np.random.default_rng(0)
    axes = {
        "queue_cap": list(range(200, 230)),
        "max_lag": list(range(30)),
        "sync_cadence": list(range(1, 9)),
    }
    ds = made_up(
        axes,
        2,
        **{THROUGHPUT: rng.random((30, 30, 8, 2)) * 100, ESS: 0.5 + 0.5 * rng.random((30, 30, 8, 2))},
    )
    report = write_report(ds, tmp_path / "report.html", images=False)
    page = Page(report.page.read_text("utf-8"))

    assert report.bytes < 2_500_000
    assert "of 7,200 configurations are left out" in page.words
    assert (
        "25 of 30 values of max_lag; 25 of 30 values of queue_cap; 6 of 8 values of sync_cadence"
        in page.words
    )


def test_every_caption_says_what_its_chart_shows(sweep):
    for chart in report_charts(gather(sweep)):
        assert chart.title
        assert chart.caption.endswith(".")


# Commands --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "sweep"
    run_sweep(small_base(), {"max_lag": [0, 2]}, 3, store=folder)
    return folder


def _run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_command_writes_beside_the_store_unless_told_otherwise(store, tmp_path, monkeypatch):
    assert _run(store, "--no-images").return_value == 0
    assert (store.parent / "sweep-report.html").exists()
    monkeypatch.chdir(store)
    assert _run(".", "--no-images").stdout.startswith(str(store.parent / "sweep-report.html"))
    assert _run("cells.zarr", "--no-images").stdout.startswith(str(store.parent / "sweep-report.html"))
    monkeypatch.chdir(store.parent)
    assert _run("sweep", "--no-images").stdout.startswith("sweep-report.html (")
    facts = json.loads(_run(store, "-o", tmp_path / "mine.html", "--json").stdout)
    assert facts["page"] == str(tmp_path / "mine.html")
    assert facts["bytes"] == (tmp_path / "mine.html").stat().st_size
    assert (tmp_path / "mine-charts" / "frontier.png").exists()


def test_the_page_names_the_commands_that_make_it_again(store, tmp_path):
    _run(store, "-o", tmp_path / "r.html", "--no-images")
    words = Page((tmp_path / "r.html").read_text("utf-8")).words

    assert "lagsweep run spec.toml" in words
    assert f"lagsweep run {store}/spec.toml --store {store}" in words
    assert f"lagsweep verify {store}" in words
    assert re.search(rf"lagsweep trace {store} --cell \d+ --seed 0", words)
    assert "run = ls.simulate_pipeline(ls.config_at(ds, " in words


def test_the_spec_on_the_page_gives_the_same_sweep(store, tmp_path):
    import tomllib

    from lagsweep.sweeps.sweep.run import load_spec

    _run(store, "-o", tmp_path / "r.html", "--no-images")
    page = (tmp_path / "r.html").read_text("utf-8")
    spec = re.search(r"<summary>spec.toml</summary><pre>(.*?)</pre>", page, re.S).group(1)
    spec = html.unescape(spec)
    assert tomllib.loads(spec)
    (tmp_path / "spec.toml").write_text(spec)

    assert load_spec(tmp_path / "spec.toml").fingerprint == load_spec(store / "spec.toml").fingerprint


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-o", "page.htm"], "output: must end in .html (got 'page.htm'). Name it report.html."),
        (["-o", "nowhere/page.html"], "output: must lie in a folder that exists (got 'nowhere/page.html')."),
        (["--reference", "max_lag=7"], "cell.max_lag: no cell has this value (got 7). It is "),
        (["--min-ess", "2"], "min_ess: must be between 0 and 1 (got 2.0). Give 0.9."),
        (["--maximize", "tokens"], "metric: must be one of the dataset's (got 'tokens')."),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(store, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    outcome = _run(store, *arguments)

    assert isinstance(outcome.exception, ConfigError)
    assert str(outcome.exception).startswith(text)
    assert list(tmp_path.iterdir()) == []


def test_styles_and_scripts_come_with_the_package():
    folder = files("lagsweep.sweeps.pages") / "report_assets"

    assert "prefers-color-scheme: dark" in (folder / "report.css").read_text("utf-8")
    assert "vegaEmbed" in (folder / "report.js").read_text("utf-8")


def test_excluded_cells_are_no_runs_that_are_missing(tmp_path):
    spec = make_spec(
        small_base(),
        {"max_lag": [0, 1], "sync_cadence": [1, 2]},
        2,
        constraints=["sync_cadence <= max_lag + 1"],
    )
    write_report(run_spec(spec), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")

    assert "3 configurations (max_lag × sync_cadence, 1 more excluded) × 2 seeds: 6 of 6 runs done." in page
