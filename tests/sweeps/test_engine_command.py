"""``lagsweep engine``: fit and show from files to tables, data and a page; what is wrong ends with code 2."""

from __future__ import annotations

import json
import tomllib

import polars as pl
import pytest
from oracle.every_command import ENGINE, REQUESTS, run

import lagsweep as ls
from lagsweep.sweeps.charts.engine import thinned_levels
from lagsweep.sweeps.engines.over_time import over_time

FIT = ["--model", "Llama-3.1-8B", "--accelerator", "H100", "--kv-cache-tokens", "none", "--force"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / "engine.toml").write_text(ENGINE)
    return tmp_path


def call(*arguments):
    answer = run(["engine", *map(str, arguments)])
    return answer.code, answer.out.decode(), answer.err.decode()


def test_fit_writes_the_engine_and_a_page_and_says_what_it_found(folder):
    code, out, err = call("fit", "requests.csv", *FIT, "-o", "fitted.toml", "--page", "page.html")

    assert (code, err) == (0, "")
    assert out.startswith("Llama-3.1-8B on H100-SXM: fitted on 12 of 24 rows of requests.csv, 12 held out.\n")
    assert "written: fitted.toml, page.html" in out
    assert max(map(len, out.splitlines())) <= 80
    written = tomllib.loads((folder / "fitted.toml").read_text())
    assert written["fitted"]["rows_fitted"] == 12
    assert written["fitted"]["columns"]["arrival"] == "'arrival_s', seconds by its name"
    assert set(written["fitted"]["intervals"]) == {
        "step_seconds", "step_seconds_per_rollout", "step_seconds_per_context_token",
        "prefill_seconds_per_token",
    }  # fmt: skip
    page = (folder / "page.html").read_text()
    assert "default-src 'none'" in page
    assert "http://" not in page.split("<script")[0]


def test_fit_as_data_is_one_document_with_everything(folder):
    code, out, _ = call("fit", "requests.csv", *FIT, "--json")
    found = json.loads(out)

    assert code == 0
    assert set(found) == {
        "schema",
        "engine",
        "fitted",
        "parameters",
        "coefficients",
        "errors",
        "notes",
        "written",
    }
    assert found["errors"]["held"]["requests"] == 12
    assert [one["told_by"] in ("data", "data and prior", "prior") for one in found["parameters"]] == [
        True
    ] * 5


def test_a_fitted_engine_can_be_shown(folder):
    assert call("fit", "requests.csv", *FIT, "-o", "fitted.toml")[0] == 0
    code, out, _ = call("show", "fitted.toml", "requests.csv", "--json")
    found = json.loads(out)

    assert code == 0
    assert found["totals"]["decoded_tokens"] == sum(20 + k % 7 for k in range(24))
    assert found["errors"]["requests"] == 24


def test_show_gives_the_times_that_simulate_engine_gives(folder):
    code, out, _ = call("show", "engine.toml", "requests.csv", "--times", "t.parquet", "--timeline", "l.csv")
    log = ls.read_requests("requests.csv")
    engine = ls.Engine(step_seconds=0.01, kv_cache_tokens=400, max_running=4)
    result = ls.simulate_engine(engine, log.prompt_tokens, log.output_tokens, log.arrival_seconds)

    assert code == 0
    assert pl.read_parquet("t.parquet").equals(result.requests_frame())
    assert pl.read_csv("l.csv").height == result.timeline_frame().height
    assert f"At most {result.timeline_frame()['running'].max()} rollouts ran" in out


def test_cards_lists_every_shipped_accelerator_with_its_source(folder):
    code, out, _ = call("cards", "--json")

    assert code == 0
    assert len(json.loads(out)["cards"]) == 24
    assert all(card["source"] for card in json.loads(out)["cards"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fit", "requests.csv", "--accelerator", "H100", "--force"], "--model: is required"),
        (["fit", "requests.csv", "--model", "Qwen3-8B", "--force"], "--accelerator: is required"),
        (["fit", "requests.csv", *FIT, "--column", "prompt"], "--column: must be NAME=TEXT"),
        (["fit", "requests.csv", *FIT, "--unit", "s", "--unit", "ms"], "--unit: must be given once"),
        (["fit", "requests.csv", *FIT, "--column", "output=no"], "--column output: must be a column of"),
        (["fit", "requests.csv", *FIT, "--stages"], "column of running: is required"),
        (["fit", "requests.csv", *FIT, "--page", "page.htm"], "--page: must end in .html"),
        (["fit", "requests.csv", *FIT, "-o", "no/engine.toml"], "--output: must lie in a folder"),
        (
            ["fit", "requests.csv", *FIT[:4], "--force", "--kv-cache-tokens", "many"],
            "--kv-cache-tokens: must be a whole",
        ),
        (["show", "engine.toml", "no.csv"], "path: must name a file that exists"),
        (["show", "requests.csv", "requests.csv"], "must be valid TOML"),
    ],
)
def test_what_is_wrong_is_said_and_ends_with_two(folder, arguments, text):
    code, _, err = call(*arguments)

    assert code == 2
    assert text in err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("step_seconds = 0.01\nkv_cache_tokens = 60\n", "must fit engine.kv_cache_tokens, 60"),
        ("step_seconds = -1\n", "step_seconds: must be at least 0"),
        ("step_second = 1\n", "step_second: is not a known field"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(folder, content, text):
    (folder / "bad.toml").write_text(content)
    code, _, err = call("show", "bad.toml", "requests.csv")

    assert code == 2
    assert text in err


def test_what_no_engine_can_have_measured_is_refused_as_data_too(folder):
    (folder / "late.csv").write_text(REQUESTS.replace("e2e_s", "e2e_ms").replace("ttft_s", "ttft_us"))
    code, out, _ = call("fit", "late.csv", *FIT, "--json")

    assert code == 2
    assert json.loads(out)["error"]["findings"][0]["field"] == "unit of end_to_end"


def test_preemptions_over_time_add_up_to_those_of_the_requests():
    engine = ls.Engine(step_seconds=0.01, step_seconds_per_context_token=1e-6, kv_cache_tokens=300, count=2)
    result = ls.simulate_engine(engine, [20] * 30, [60 + 3 * k for k in range(30)])
    seen = [over_time(result, None, number) for number in range(2)]

    assert result.totals["preemptions"] > 0
    assert sum(one.most("preemptions") for one in seen) == result.totals["preemptions"]
    assert all(one.most("kv_tokens") <= 300 for one in seen)


def test_many_changes_are_drawn_as_the_highest_of_each_span():
    import numpy as np

    seconds = np.linspace(0, 9.999, 5000)
    level = np.zeros(5000)
    level[1234] = 7.0
    rows = thinned_levels(seconds, {"running": level}, 10.0)

    assert len(rows) <= 601
    assert max(row["running"] for row in rows) == 7.0
