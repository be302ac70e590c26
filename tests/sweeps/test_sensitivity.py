"""What moves a metric most: indices where they are known by hand, ranges, folders, the page, the command."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.errors import ConfigError, StoreError
from lagsweep.sweeps.json_text import json_document
from lagsweep.sweeps.search.sensitivity_file import differing_settings, read_sensitivity
from lagsweep.sweeps.spec.make import make_spec

# One rollout a batch, always as long, and a trainer that is never idle after the first: an update takes its
# overhead and its fetch, so the variance of seconds per update is the sum of theirs.
BUSY = ls.PipelineConfig(
    rollout_workers=64,
    response_length=ls.LengthLaw.fixed(100),
    batch_tokens=100,
    max_queue_tokens=6400,
    decode_tokens_per_second=1000.0,
    rollout_overhead_seconds=0.0,
    train_tokens_per_second=1e6,
    sync_seconds=0.0,
    duration_seconds=20_000.0,
    warmup_seconds=100.0,
    max_policy_lag=1000,
)
RANGES = {"train_overhead_seconds": {"from": 10.0, "to": 11.0}, "fetch_seconds": {"from": 1.0, "to": 3.0}}


def test_shares_of_the_variance_are_those_worked_out_by_hand():
    """Two independent uniforms that add up: variances 1/12 and 4/12, so a fifth and four fifths."""
    found = ls.sensitivity(BUSY, RANGES, metrics="seconds_per_update", points=128, seeds=1)
    share = dict(zip(found.frame["axis"], found.frame["S1"]))
    total = dict(zip(found.frame["axis"], found.frame["ST"]))

    assert found.frame["axis"].to_list() == ["fetch_seconds", "train_overhead_seconds"]
    assert share["fetch_seconds"] == pytest.approx(0.8, abs=0.03)
    assert share["train_overhead_seconds"] == pytest.approx(0.2, abs=0.03)
    assert total["fetch_seconds"] == pytest.approx(0.8, abs=0.03)
    assert found.means["seconds_per_update"] == pytest.approx(12.5, abs=0.1)


def test_effects_are_in_the_metrics_own_unit():
    found = ls.sensitivity(BUSY, RANGES, metrics="seconds_per_update", method="morris", points=8, seeds=1)
    effect = dict(zip(found.frame["axis"], found.frame["mu_star"]))

    assert effect["fetch_seconds"] == pytest.approx(2.0, abs=0.05)
    assert effect["train_overhead_seconds"] == pytest.approx(1.0, abs=0.05)
    assert max(found.frame["sigma"]) < 0.05


def test_what_moves_nothing_is_said_to_and_repeated_points_run_once():
    axes = {"max_lag": [900, 1000], "sync_cadence": [1, 2]}
    found = ls.sensitivity(BUSY, axes, metrics=("seconds_per_update",), points=16, seeds=2)

    assert found.points == 4
    assert found.runs == 8
    assert found.frame["ST"].to_list() == [0.0, 0.0]
    assert "Nothing in these ranges moves seconds_per_update" in " ".join(str(found).split())


def test_noise_is_what_seeds_add():
    base = ls.PipelineConfig(duration_seconds=200.0, train_tokens_per_second=1000.0)
    axes = {"train_overhead_seconds": {"from": 5.0, "to": 5.4}}
    noisy = ls.sensitivity(base, axes, metrics="seconds_per_update", points=8, seeds=4)
    plain = ls.sensitivity(base, {"train_overhead_seconds": {"from": 1.0, "to": 9.0}}, points=8, seeds=4)
    alone = ls.sensitivity(base, axes, metrics="seconds_per_update", points=8, seeds=1)

    assert noisy.noise["seconds_per_update"] > 3 * plain.noise["seconds_per_update"]
    assert np.isnan(alone.noise["seconds_per_update"])
    assert "not known" in str(alone)


def test_a_folder_keeps_the_runs_and_refuses_another_question(tmp_path):
    first = ls.sensitivity(BUSY, RANGES, metrics="updates", points=8, seeds=1, store=tmp_path / "s")
    other_metric = ls.sensitivity(BUSY, RANGES, metrics="mean_lag", points=8, seeds=1, store=tmp_path / "s")

    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["runs", "sensitivity.json"]
    assert first.points == other_metric.points
    with pytest.raises(StoreError, match="another sensitivity"):
        ls.sensitivity(BUSY, RANGES, points=16, seeds=1, store=tmp_path / "s")


@pytest.mark.parametrize(
    ("axes", "changes", "words"),
    [
        (RANGES, {"metrics": "tokens"}, "metrics"),
        (RANGES, {"method": "fast"}, "method"),
        (RANGES, {"points": 1}, "points"),
        (RANGES, {"seeds": 0}, "seeds"),
        ({}, {}, "axes"),
        ({"max_lag": [1, 2]}, {"method": "morris"}, "two or more"),
        ({**RANGES, "max_lag": [0, 1]}, {"constraints": ("max_lag > 0",)}, "every point makes sense"),
        (
            {"batch_tokens": [100, 10**11]},
            {"metrics": "seconds_per_update"},
            "every run trains",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(axes, changes, words):
    with pytest.raises(ConfigError, match=words):
        ls.sensitivity(BUSY.replace(max_queue_tokens=None), axes, **({"points": 8, "seeds": 1} | changes))


def test_salib_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "SALib", None)
    with pytest.raises(ConfigError, match=r"lagsweep\[sensitivity\]"):
        ls.sensitivity(BUSY, RANGES)


def test_a_law_and_the_drift_may_vary_too():
    base = ls.PipelineConfig(duration_seconds=300.0)
    found = ls.sensitivity(
        base,
        {"drift_per_version": {"from": 0.1, "to": 0.5}, "sync_seconds": {"from": 0.1, "to": 0.2}},
        metrics="mean_expected_normalized_ess",
        points=16,
    )

    assert found.frame["axis"][0] == "drift_per_version"
    assert found.frame["ST"][0] > 0.5


def test_the_command_prints_tables_writes_a_page_and_json(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(tmp_path)
    call = ["sensitivity", "--axis", "max_lag=1..6", "--axis", "sync_seconds=0.1..4", "--points", "8", "-q"]
    call += ["--duration-seconds", "300", "--metric", "seconds_per_update"]
    text, data = run([*call, "--report", "page.html"]), run([*call, "--json"])

    facts = json.loads(data.out)
    assert text.code == data.code == 0
    assert {row["axis"] for row in facts["indices"]} == {"max_lag", "sync_seconds"}
    assert all(len(line) <= 60 for line in text.out.decode().splitlines() if "results/" not in line)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "sync_seconds" in page
    assert "What moves it most" in page
    assert run([*call, "--report", "page.pdf"]).code == 2


def test_the_chart_has_a_bar_for_every_index():
    found = ls.sensitivity(BUSY, RANGES, metrics="seconds_per_update", points=8, seeds=1)
    spec = found.chart().to_dict()
    (rows,) = (
        [one["values"] for one in [spec["data"]]]
        if "values" in spec.get("data", {})
        else [next(iter(spec["datasets"].values()))]
    )

    assert len(rows) == 4
    with pytest.raises(ConfigError, match="metric"):
        found.chart("mean_lag")


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A small sensitivity, and the document that its command writes."""
    found = ls.sensitivity(
        BUSY.replace(duration_seconds=2000.0), RANGES, metrics=("seconds_per_update", "trained_tokens"),
        points=8, seeds=2, constraints=("batch_tokens >= 100",),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("moved") / "moved.json"
    path.write_text(json_document("sensitivity", found.to_dict()))
    return found, path


def test_its_document_is_read_back(moved):
    found, path = moved
    again = read_sensitivity(path)

    assert again.to_dict() == found.to_dict()
    assert str(again) == str(found)
    assert found.base["train_tokens_per_second"] == 1e6
    assert found.constraints == ("batch_tokens >= 100",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plain: "[1]", "sensitivity: must be a document of lagsweep/sensitivity/1"),
        (lambda plain: {**plain, "schema": "lagsweep/search/1"}, "sensitivity: must be a document of"),
        (lambda plain: "{", "sensitivity: must be JSON"),
        (lambda plain: {**plain, "method": "guess"}, "sensitivity.method: must be one of"),
        (lambda plain: {**plain, "points": "many"}, "sensitivity.points: must be a whole number"),
        (lambda plain: {**plain, "noise": {}}, "sensitivity.means: must name the metrics of the others"),
        (lambda plain: {**plain, "indices": plain["indices"][1:]}, "sensitivity.indices: must have one row"),
        (
            lambda plain: {**plain, "indices": [{**row, "S1": "a"} for row in plain["indices"]]},
            r"sensitivity.indices\[0\]: must have S1",
        ),
    ],
)
def test_a_file_that_is_no_sensitivity_is_refused(moved, tmp_path, change, said):
    plain = change({"schema": "lagsweep/sensitivity/1", **moved[0].to_dict()})
    path = tmp_path / "other.json"
    path.write_text(plain if isinstance(plain, str) else json.dumps(plain))

    with pytest.raises(ConfigError, match=said):
        read_sensitivity(path)


def test_a_report_shows_it_with_what_it_was_computed_from(moved, tmp_path):
    found, _ = moved
    ds = ls.run_sweep(BUSY.replace(duration_seconds=1000.0), {"sync_cadence": [1, 2]}, 2, progress=False)
    page = tmp_path / "page.html"
    text = ls.write_report(ds, page, images=False, sensitivity=found).page.read_text()

    assert "What moves it most" in text
    assert f"{found.points} points over 2 ranges, 2 seeds each." in text
    assert "Every point keeps batch_tokens &gt;= 100." in text
    assert "duration_seconds is 2000 there, and 1000 here" in text
    assert text.count(" there, and ") == 1
    assert 'id="chart-indices-trained_tokens"' in text
    with pytest.raises(ConfigError, match="sensitivity"):
        ls.write_report(ds, page, images=False, sensitivity=3)


def test_settings_that_are_the_same_or_not_known_are_told_apart(moved):
    found, _ = moved
    same = make_spec(BUSY.replace(duration_seconds=2000.0), {"sync_cadence": [1, 2], "fetch_seconds": [2]}, 1)

    assert differing_settings(found, same) == []
    assert differing_settings(dataclasses.replace(found, base=None), same) is None
    other = make_spec(BUSY.replace(duration_seconds=2000.0, batch_tokens=200), {}, 1)
    assert [one.field for one in differing_settings(found, other)] == ["batch_tokens"]


def test_the_command_writes_the_section_and_leaves_the_store_as_it_was(moved, tmp_path):
    _, path = moved
    store = tmp_path / "store"
    ls.run_sweep(
        BUSY.replace(duration_seconds=500.0), {"sync_cadence": [1, 2]}, 1, store=store, progress=False
    )
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    answer = run(
        ["report", str(store), "--sensitivity", str(path), "--no-images", "-o", str(tmp_path / "page.html")]
    )

    assert answer.code == 0, answer.err
    assert "What moves it most" in (tmp_path / "page.html").read_text()
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before
    assert run(["report", str(store), "--sensitivity", str(store / "spec.toml")]).code == 2
