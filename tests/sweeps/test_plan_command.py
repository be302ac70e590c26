"""``lagsweep plan``: what it prints, writes and refuses, on wide and narrow terminals."""

from __future__ import annotations

import json

import pytest

from lagsweep import load_accelerator, open_sweep
from lagsweep.sweeps.cli.main import main

FLAGS = [
    *("--model", "Qwen3-8B", "--accelerator", "H100", "--gpus", "8", "--prompts", "4", "--group-size", "4"),
    *("--prompt-tokens", "100", "--max-tokens", "1000", "--quiet", "--seeds", "2"),
    *("--rollout-gpus", "2,4", "--tensor-parallel", "1", "--caps", "16", "--cadence", "1"),
]
LAW = ["--law", "lognormal:200:0.6:1:1000"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_it_prints_the_best_with_its_range_and_what_to_measure(capsys):
    code, out, err = run(capsys, *FLAGS, *LAW, "--price", "3")

    assert (code, err) == (0, "")
    assert out.startswith("Qwen3-8B on 8 x H100-SXM: ")  # the card that the alias H100 names
    for words in ("Best: ", " s per update", "at 3 an hour", "Measure this first: ", "feasible, of which"):
        assert words in out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_it_fits_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run(capsys, *FLAGS, *LAW)

    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    table = out.split("The best of each split")[1].split("One setting changed")[0].splitlines()
    rule = next(place for place, line in enumerate(table) if line.startswith("──"))
    rows = table[rule + 1 : next(place for place, line in enumerate(table) if line.startswith("tp: GPUs"))]
    rows = [line for line in rows if not line.startswith(("Left out", "tokens", "waits", "slots"))]
    assert [line.split()[0].rstrip("*") for line in rows] == ["all", "2+6", "4+4"]  # no row is cut in two
    assert "s per" in " ".join(table[1:rule])
    assert "effective/s" not in out
    assert ("tokens/s" in " ".join(table[1:rule])) or "eff. tokens/s" in " ".join(table)


def test_the_runs_are_kept_where_results_lie_and_the_same_command_goes_on(capsys, tmp_path):
    run(capsys, *FLAGS, *LAW)
    (folder,) = (tmp_path / "results").iterdir()
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("cells.zarr/**/*"))
    _, first, _ = run(capsys, *FLAGS, *LAW)
    after = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("cells.zarr/**/*"))

    assert folder.name.startswith("plan-Qwen3-8B-H100-SXM-8-")
    assert before == after
    assert "Best: " in first
    assert open_sweep(folder).attrs["complete"]


def test_everything_is_one_json_document(capsys):
    code, out, _ = run(capsys, *FLAGS, *LAW, "--json", "--table", "cells.csv", "--page", "plan.html")
    found = json.loads(out)

    assert code == 0
    assert found["asked"]["gpus"] == 8
    assert found["best"] in found["cells"]
    assert {one["status"] for one in found["cells"]} <= {"simulated", "bounded", "infeasible", "redundant"}
    assert [one["name"] for one in found["asked"]["inputs"]][:2] == ["layer_seconds", "weight_efficiency"]
    swings = [
        abs(one["seconds_per_update_at_high"] - one["seconds_per_update_at_low"]) for one in found["inputs"]
    ]
    assert swings == sorted(swings, reverse=True)


def test_a_table_has_a_row_for_every_cell_and_a_page_stands_alone(capsys, tmp_path):
    import polars as pl

    run(capsys, *FLAGS, *LAW, "--cadence", "1,4", "--table", "cells.parquet", "--page", "plan.html")
    table = pl.read_parquet(tmp_path / "cells.parquet")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")

    # One-step-off has a cadence of its own, and colocated engines one split.
    assert table.height == 2 + 2 * 2 + 2 + 3 * 2 * 2
    assert "Measure this first" in page
    assert "https://" not in page.split("<script")[0]
    assert "What cannot be, and by how much" in page


def test_nothing_feasible_ends_with_1_and_the_amounts(capsys, tmp_path):
    code, out, _ = run(capsys, *FLAGS, *LAW, "--model", "DeepSeek-V3", "--page", "no.html")

    assert code == 1
    assert "No: none of the" in out
    assert "GiB missing" in out
    assert "GiB missing" in (tmp_path / "no.html").read_text(encoding="utf-8")


def test_without_a_law_it_names_three_and_ends_with_2(capsys):
    code, out, err = run(capsys, *FLAGS)

    assert (code, out) == (2, "")
    assert err.count("(mean ") == 3
    assert "--law" in err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--input", "mfu"], "--input"),
        (["--input", "mfu=1"], "--input mfu"),
        (["--input", "weight_efficiency=0.9..0.8"], "--input weight_efficiency"),
        (["--rollout-gpus", "2;4"], "--rollout-gpus"),
        (["--max-lag", "-1"], "--max-lag"),
        (["--accelerator", "nowhere.toml"], "--accelerator"),
        (["--network", "wires"], "--network"),
        (["--systems", "areal:nothing=1"], "nothing"),
        (["--measured", "nowhere.toml"], "nowhere.toml"),
        (["--page", "page.txt"], "--page"),
        (["--table", "cells.txt"], "--table"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_what_is_wrong_is_named_by_its_flag(capsys, flags, named):
    code, out, err = run(capsys, *FLAGS, *LAW, *flags)

    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


def test_a_card_and_a_network_of_ones_own(capsys, tmp_path):
    (tmp_path / "card.toml").write_text(
        'name = "mine"\nmemory_bytes = 80e9\nmemory_bytes_per_second = 2e12\nbf16_flops_per_second = 3e14\n'
    )
    (tmp_path / "net.toml").write_text('name = "ours"\nbytes_per_second = 12e9\nhigh = 20e9\n')
    own = ["--accelerator", "card.toml", "--network", "net.toml", "--json"]
    code, out, _ = run(capsys, *FLAGS, *LAW, *own)
    asked = json.loads(out)["asked"]
    (rate,) = (one for one in asked["inputs"] if one["name"] == "publication_rate")

    assert code == 0
    assert (asked["accelerator"], asked["network"]) == ("mine", "ours")
    assert (rate["low"], rate["high"]) == (12e9, 20e9)
    assert load_accelerator(tmp_path / "card.toml").memory_bytes == 80e9
