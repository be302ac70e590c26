"""The lab: ten sections in order, the facts that they rest on, and files that open without a network."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from lagsweep.errors import ConfigError
from lagsweep.sweeps.charts.images import file_images
from lagsweep.sweeps.cli.lab_command import command
from lagsweep.sweeps.lab.lab import lab_profile, run_lab
from lagsweep.sweeps.lab.loops import SWEPT_CADENCES, SWEPT_LAGS
from lagsweep.sweeps.lab.model import PROFILES, Chart, Column, Section, Table
from lagsweep.sweeps.pages import lab as lab_files
from lagsweep.sweeps.pages.lab import csv_text, lab_page, write_lab
from lagsweep.sweeps.runs.simulate import simulate_pipeline

TITLES = [
    "A profile that can be run again",
    "Memory ledger",
    "Phase peaks, overlap and stragglers",
    "A sequential and two bounded asynchronous loops",
    "Queue depth and backpressure",
    "Staleness and weight concentration",
    "The rollout contract",
    "Weight synchronization",
    "Checkpoints and a failure drill",
    "A real model",
]


@pytest.fixture(scope="module")
def sections():
    return list(run_lab("smoke"))


@pytest.fixture(scope="module")
def folder(sections, tmp_path_factory):
    target = tmp_path_factory.mktemp("lab") / "lab-smoke"
    write_lab(target, "smoke", sections)
    return target


def _rows(sections, name):
    return next(table.rows for section in sections for table in section.tables if table.name == name)


# The sections


def test_ten_sections_come_in_order(sections):
    assert [(section.number, section.title) for section in sections] == list(enumerate(TITLES, start=1))


def test_memory_has_the_sums_that_can_be_checked_on_paper(sections):
    totals = [row["bytes"] for row in _rows(sections, "memory_state")]
    caches = {row["tokens"]: row["heads_4"] for row in _rows(sections, "memory_kv_cache")}

    assert totals[0] == 84_000_000_000
    assert totals[1] == 112_000_000_000
    assert totals[3] == 15_120_000_000
    assert caches[4096] == 16 * 2**30
    assert caches[32_768] == 8 * caches[4096]


def test_overlap_has_the_peak_the_saved_time_and_the_third(sections):
    phases = {row["phase"]: row["gib"] for row in _rows(sections, "overlap_phases")}
    ten = next(row for row in _rows(sections, "overlap_pipeline") if row["batches"] == 10)

    assert phases == {"rollout": 32.0, "training": 50.0, "weight publication": 30.0}
    assert (ten["sequential_seconds"], ten["overlapped_seconds"]) == (800.0, 620.0)
    assert _rows(sections, "overlap_stragglers")[0]["slowest_over_mean"] == 3.0
    assert "33.3%" in sections[2].paragraphs[2]


def test_the_loops_are_the_simulators_and_their_gain_is_taken_by_seed(sections):
    from lagsweep.sweeps.lab.loops import run_loops

    profile = lab_profile("smoke")
    loops = run_loops(profile)
    base, other = (
        np.array(
            [
                simulate_pipeline(config.replace(seed=profile.first_seed + offset)).trained_tokens_per_second
                for offset in range(profile.seeds)
            ]
        )
        for config in list(loops.configs.values())[:2]
    )
    row = _rows(sections, "loops")[1]

    assert row["tokens"] == pytest.approx(other.mean(), rel=1e-12)
    assert row["gain"] == pytest.approx((other - base).mean(), rel=1e-12)
    assert row["gain_half"] == pytest.approx(
        2.0095752371292397 * (other - base).std(ddof=1) / profile.seeds**0.5, rel=1e-9
    )


def test_the_sequential_loop_is_fresh_and_never_held_back(sections):
    queue = {row["loop"]: row for row in _rows(sections, "queue")}
    staleness = {row["loop"]: row for row in _rows(sections, "staleness")}

    assert queue["sequential"]["backpressure"] == 0.0
    assert staleness["sequential"]["mean_lag"] == 0.0
    assert staleness["sequential"]["min_ess"] == 1.0


def test_the_sweep_leaves_out_what_would_starve_and_marks_what_nothing_beats(sections):
    best = _rows(sections, "sweep")
    rates = [row["tokens"] for row in best]

    assert rates == sorted(rates, reverse=True)
    assert [row["ess"] for row in best] == sorted(row["ess"] for row in best)
    assert all(row["sync_cadence"] <= row["max_lag"] + 1 for row in best)
    assert {row["max_lag"] for row in best} <= set(SWEPT_LAGS)
    assert {row["sync_cadence"] for row in best} <= set(SWEPT_CADENCES)


def test_the_records_show_every_violation(sections):
    findings = {row["fault"]: row["findings"] for row in _rows(sections, "contract")}

    assert findings["nothing"] == 0
    assert findings["both of the first two"] == 2
    assert all(count >= 1 for fault, count in findings.items() if fault != "nothing")


def test_publication_takes_what_bytes_and_bandwidth_say(sections):
    full, adapters = _rows(sections, "sync_transfer")
    cadence = {row["sync_every"]: row for row in _rows(sections, "sync_cadence")}

    assert full["seconds"] == pytest.approx(0.85)
    assert adapters["seconds"] == pytest.approx(0.157)
    assert {every: (row["synchronizations"], row["max_lag"]) for every, row in cadence.items()} == {
        1: (16, 0),
        2: (8, 1),
        4: (4, 3),
        8: (2, 7),
    }


def test_checkpoints_have_youngs_hour_and_a_drill_that_is_passed(sections):
    rules = {row["rule"]: row["interval_seconds"] for row in _rows(sections, "checkpoint_intervals")}
    resumes = {row["resume"]: row["equal"] for row in _rows(sections, "checkpoint_drill")}

    assert rules["Young, first order"] == 3600.0
    assert rules["exact optimum"] == pytest.approx(3481.0134144565623)
    assert resumes.pop("right") is True
    assert len(resumes) == 6
    assert not any(resumes.values())
    assert "equals the uninterrupted run" in sections[8].paragraphs[2]


def test_the_tenth_section_says_how_it_is_measured(sections):
    assert "lagsweep lab --profile real-model" in sections[9].paragraphs[0]
    assert sections[9].tables == ()


def test_every_chart_has_a_title_units_and_words(sections):
    charts = [chart for section in sections for chart in section.charts]

    assert len(charts) == 7
    for chart in charts:
        assert chart.title
        assert len(chart.description) > 40
        titles = re.findall(r'"title": "([^"]+)"', json.dumps(chart.spec))
        assert any("," in title or title in {"GiB", "trained tokens/s", "exact overhead"} for title in titles)


def test_the_full_profile_only_simulates_more():
    smoke, full = PROFILES["smoke"], PROFILES["full"]

    assert (smoke.duration_seconds, full.duration_seconds) == (120.0, 240.0)
    assert replace(PROFILES["real-model"], name="smoke") == smoke
    assert full.seeds > smoke.seeds
    assert full.first_seed == smoke.first_seed == 12016


# Files


def test_every_table_and_chart_is_a_file(sections, folder):
    tables = {table.name for section in sections for table in section.tables}
    charts = {chart.name for section in sections for chart in section.charts}

    assert {path.name for path in folder.iterdir()} == {"index.html", "plots", "tables"}
    assert {path.stem for path in (folder / "tables").iterdir()} == tables
    for suffix in (".svg", ".png"):
        assert {path.stem for path in (folder / "plots").glob(f"*{suffix}")} == charts
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in (folder / "plots").glob("*.png"))
    for path in (folder / "plots").glob("*.svg"):
        assert ElementTree.fromstring(path.read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def test_csv_files_hold_raw_values(folder):
    rows = list(csv.DictReader(io.StringIO((folder / "tables" / "loops.csv").read_text())))

    assert list(rows[0]) == [
        "loop", "updates", "updates_half", "tokens", "tokens_half", "effective", "effective_half",
        "gain", "gain_half",
    ]  # fmt: skip
    assert float(rows[1]["tokens"]) > float(rows[0]["tokens"]) > 0
    assert rows[0]["gain"] == ""


def test_the_same_profile_writes_the_same_bytes(sections, folder):
    again = list(run_lab("smoke"))
    chart = again[1].charts[0]

    assert lab_page("smoke", again) == (folder / "index.html").read_bytes()
    assert file_images(chart.spec)["png"] == (folder / "plots" / f"{chart.name}.png").read_bytes()
    for section in again:
        for table in section.tables:
            assert csv_text(table).encode() == (folder / "tables" / f"{table.name}.csv").read_bytes()


class _Page(html.parser.HTMLParser):
    """What a page loads, its ids, and its text."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.ids, self.tags, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                self.loads.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_needs_no_network(folder):
    text = (folder / "index.html").read_text()
    page = _Page(text)

    assert all(target.startswith("#") for target in page.loads)
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {f"#{name}" for name in page.ids}
    assert page.tags.count("svg") == 7


def test_no_two_parts_of_the_page_share_an_id(folder):
    ids = _Page((folder / "index.html").read_text()).ids

    assert len(ids) == len(set(ids))


def test_the_page_has_all_ten_sections_and_every_table(sections, folder):
    page = _Page((folder / "index.html").read_text())
    text = "".join(page.text)

    assert [name for name in page.ids if name.startswith("section-")] == [
        f"section-{n}" for n in range(1, 11)
    ]
    for section in sections:
        assert all(paragraph in text for paragraph in section.paragraphs)
        assert all(cell in text for table in section.tables for row in table.texts() for cell in row)


def test_text_on_the_page_is_escaped():
    table = Table("t", "a < b", (Column("x", "<script>"),), [{"x": "<img src=x>"}])
    page = lab_page("<b>", [Section(1, "A & B", ("1 < 2",), (table,))]).decode()

    assert not {"script", "img", "b"} & set(_Page(page).tags)
    assert "&lt;img src=x&gt;" in page


def test_a_charts_description_cannot_break_out_of_its_attribute():
    spec = {
        "mark": "point",
        "data": {"values": [{"x": 1}]},
        "encoding": {"x": {"field": "x", "type": "quantitative"}},
    }
    chart = Chart("c", "title", 'says "x" & <y>', spec)
    page = lab_page("smoke", [Section(1, "A", (), (), (chart,))]).decode()

    assert 'aria-label="says &#34;x&#34; &amp; &lt;y&gt;"' in page
    assert "config" not in spec


def test_cells_are_written_as_their_columns_say():
    rows = [{"a": 1234.5, "h": 0.25, "b": None, "c": True, "d": float("nan"), "e": 2**34}]
    columns = (
        Column("a", "A", ",.2f", "h"), Column("b", "B", ".1f", "h"), Column("c", "C"),
        Column("d", "D", ".1f"), Column("e", "E", "bytes"),
    )  # fmt: skip
    table = Table("t", "T", columns, rows)

    assert table.texts() == [["1,234.50 ± 0.25", "-", "yes", "-", "16.00 GiB"]]
    assert list(csv.DictReader(io.StringIO(csv_text(table)))) == [
        {"a": "1234.5", "h": "0.25", "b": "", "c": "True", "d": "nan", "e": "17179869184"}
    ]


# The command


def _lab(*arguments):
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_the_command_prints_every_section_within_80_columns_and_writes_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _lab()

    assert result.exception is None
    places = [result.output.index(f"\n{number}. {title}") for number, title in enumerate(TITLES, start=1)]
    assert places == sorted(places)
    assert max(map(len, result.output.splitlines())) <= 80
    assert "\x1b" not in result.output
    assert "…" not in result.output, "a cell was cut"
    assert (tmp_path / "results" / "lab-smoke" / "index.html").exists()
    assert "Page, plots and tables: results/lab-smoke/index.html" in result.output


def test_json_goes_to_stdout_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lab_files, "write_lab", lambda folder, profile, sections: folder / "index.html")
    result = _lab("--json", "--output", str(tmp_path / "out"))
    document = json.loads(result.stdout)

    assert [section["title"] for section in document["sections"]] == TITLES
    assert document["sections"][8]["tables"]["checkpoint_intervals"][0]["interval_seconds"] == 3600.0
    assert document["folder"] == str(tmp_path / "out")
    assert "10 sections in" in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("smok", "profile: must be one of smoke, full, real-model (got 'smok'). Did you mean 'smoke'?"),
        (
            "zzz",
            "profile: must be one of smoke, full, real-model (got 'zzz'). Choose smoke, full or real-model.",
        ),
    ],
)
def test_an_unknown_profile_names_the_nearest(name, text):
    with pytest.raises(ConfigError) as caught:
        lab_profile(name)

    assert str(caught.value) == text
