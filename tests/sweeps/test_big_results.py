"""What a sweep of many cells costs, counted and not timed: reads, cells built, calls, pieces written."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import polars
import pytest
from click.testing import CliRunner

import lagsweep as ls
from lagsweep.kernels.errors import ConfigError
from lagsweep.sweeps.cli.main import root
from lagsweep.sweeps.json_text import document_pieces, json_document
from lagsweep.sweeps.recommend.parts import MOST_REPORTS
from lagsweep.sweeps.results import cell_table, frontier_table
from lagsweep.sweeps.results import frontier as frontiers
from lagsweep.sweeps.results.scenarios import rows_by_number
from lagsweep.sweeps.spec import axes
from lagsweep.sweeps.spec import cells as spec_cells
from lagsweep.sweeps.spec.carried import spec_from_text
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.union import union_spec
from lagsweep.sweeps.store import proof
from lagsweep.sweeps.store.proof import StoredVariable

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import big_results

BASE = ls.PipelineConfig(
    rollout_workers=4,
    duration_seconds=40,
    warmup_seconds=5,
    response_length={"law": "uniform", "minimum": 20, "maximum": 80},
    batch_tokens=400,
    train_tokens_per_second=100,
    train_overhead_seconds=0.5,
    sync_seconds=0.5,
)


def points(count: int) -> list[dict[str, Any]]:
    """Make a design without a grid, whose axes no rule leaves out of account."""
    return [
        {
            "queue_cap": [400 + 10 * place for place in range(count)],
            "decode_tokens_per_second": [round(20 + 0.1 * place, 1) for place in range(count)],
        }
    ]


@pytest.fixture(scope="module")
def grid_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store 24 cells at two seeds in 24 units, none of which is merged."""
    folder = tmp_path_factory.mktemp("big") / "grid"
    spec = make_spec(BASE, {"max_lag": list(range(4)), "queue_cap": [400, 440, 480, 520, 560, 600]}, 2)
    from lagsweep.sweeps.store.writing import run_into_store

    run_into_store(spec, folder, unit_runs=2)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, tuple[int, ...]]]:
    """Count how often each chunk of each variable is read."""
    seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
    found = StoredVariable._found

    def counted(self: StoredVariable, place: tuple[int, ...]) -> Any:
        seen[self.name, place] += 1
        return found(self, place)

    monkeypatch.setattr(StoredVariable, "_found", counted)
    return seen


def run_command(*arguments: str) -> str:
    """Run a command in this process."""
    result = CliRunner().invoke(root, list(arguments), standalone_mode=False)
    assert result.exception is None, result.output
    return result.stdout


PLACES = {(lag, cap, 0) for lag in range(4) for cap in range(6)}


def box_of(rows: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    """Return the chunks of the box along the axes in which some cells lie."""
    caps = {(row["queue_cap"] - 400) // 40 for row in rows}
    return {(lag, cap, 0) for lag in {row["max_lag"] for row in rows} for cap in caps}


def tied_on_frontier(store: Path) -> set[tuple[int, int, int]]:
    """Return the chunks of cells of the frontier that have the figures of another."""
    found = ls.frontier(ls.open_sweep(store))
    names = [found.throughput, found.ess, "mean_lag", "seconds_per_update"]
    rows = found.on_frontier()
    return box_of(rows.filter(rows.select(names).is_duplicated()).to_dicts())


def alike_the_choice(store: Path) -> set[tuple[int, int, int]]:
    """Return the chunks of the choice and of what cannot be told from it."""
    best = ls.recommend(ls.open_sweep(store), min_ess=0.5)
    return box_of([best.settings, *(tie.settings for tie in best.ties)])


def calls_of(function: Callable[[], Any]) -> int:
    """Count the calls of Python functions while a function runs."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["show"], big_results.SHOWN),
        (["show", "--json"], big_results.SHOWN),
        (["show", "--csv"], None),
    ],
)
def test_show_reads_each_chunk_of_what_it_shows_once(
    grid_store: Path, reads: Counter[Any], arguments: list[str], wanted: tuple[str, ...] | None
) -> None:
    command, *flags = arguments
    run_command(command, str(grid_store), *flags)
    names = set(wanted or big_results.stored_metrics(grid_store))
    counts = dict(reads)
    assert {at for at in counts if at[0] in names} == {(name, at) for name in names for at in PLACES}
    # What tells the same runs from equal figures is read of the cells that have these.
    further = {at for (name, at), count in counts.items() if name not in names or count > 1}
    assert further == (tied_on_frontier(grid_store) if wanted else set())
    assert max(counts.values()) <= 2


def test_recommend_reads_the_choice_alone_of_what_stands_beside_it(
    grid_store: Path, reads: Counter[Any]
) -> None:
    run_command("recommend", str(grid_store), "--min-ess", "0.5")
    counts = dict(reads)
    by_name = Counter(name for name, _ in counts)
    assert {name for name, chunks in by_name.items() if chunks == 24} == set(big_results.CHOSEN)
    assert "lag_counts" not in by_name
    others = {at for name, at in counts if name not in big_results.CHOSEN}
    # Of the chosen cell's unit, and of those that are equal in the objective and in ESS.
    assert box_of([ls.recommend(ls.open_sweep(grid_store), min_ess=0.5).settings]) <= others
    assert others <= alike_the_choice(grid_store)
    assert len(others) < 12
    assert all(count == 1 for (name, _), count in counts.items() if name in ("status", "updates", "stalled"))


def test_a_report_reads_its_variables_once_and_lags_of_the_cells_it_names(
    grid_store: Path, reads: Counter[Any], tmp_path: Path
) -> None:
    run_command("report", str(grid_store), "--no-images", "--output", str(tmp_path / "page.html"))
    by_name = Counter(name for name, _ in reads)
    assert {*big_results.REPORTED} <= set(by_name)
    assert by_name["lag_counts"] < 24
    counts = {at: count for at, count in reads.items() if at[0] != "status"}
    # What tells the same runs from equal figures is read of the cells that tie with the choice.
    further = {at for (name, at), count in counts.items() if name == "idle_slot_seconds" or count > 1}
    assert further <= alike_the_choice(grid_store)
    assert len(further) < 12


def test_a_stored_spec_is_read_without_building_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    of_cell = spec_cells._config_and_idle

    def counted(*arguments: Any) -> Any:
        nonlocal built
        built += 1
        return of_cell(*arguments)

    monkeypatch.setattr(spec_cells, "_config_and_idle", counted)
    spec = make_spec(BASE, points(40), 1)
    assert built == 40  # each once, to find contradictions before anything runs
    again = spec_from_text(spec.replace(name="read-back").to_json())
    assert built == 40
    assert again.fingerprint == spec.fingerprint
    assert (again.cell_ids == spec.cell_ids).all()
    assert [again.config(cell) == spec.config(cell) for cell in (0, 39)] == [True, True]


def test_a_contradicting_cell_of_a_carried_spec_is_refused_when_it_is_asked_for() -> None:
    """Such a spec is made by no version; a newer one may have more rules than the one that made it."""
    plain = make_spec(BASE, {"duration_seconds": [40, 50]}, 1).to_plain()
    plain["axes"]["duration_seconds"] = [4, 50]  # the warm-up takes 5
    carried = spec_from_text(json.dumps(plain))
    assert carried.config(1).duration_seconds == 50
    with pytest.raises(ConfigError, match="warmup_seconds"):
        carried.config(0)


def test_verify_does_not_run_a_cell_whose_settings_contradict_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    ls.run_sweep(BASE, {"max_lag": [0, 1, 2]}, 2, store=folder, progress=False)
    checked = type(make_spec(BASE, {}, 1)).config

    def refusing(self: Any, cell: int, seed: int | None = None) -> Any:
        if cell == 1:
            raise ConfigError("max_policy_lag", "must not be 1 any more", 1, "Take 2.")
        return checked(self, cell, seed)

    monkeypatch.setattr("lagsweep.sweeps.spec.spec.SweepSpec.config", refusing)
    report = ls.verify_store(folder, everything=True)
    assert [finding.kind for finding in report.findings] == ["spec"]
    assert report.runs_checked == 4


def test_what_a_cell_adds_to_opening_and_showing_is_a_few_calls(tmp_path: Path) -> None:
    def cost(count: int) -> int:
        folder = tmp_path / str(count)
        ls.run_sweep(BASE, points(count), 1, store=folder, progress=False)
        str(ls.frontier(ls.open_sweep(folder)))  # what is loaded on first use
        spec_from_text.cache_clear()
        return calls_of(lambda: str(ls.frontier(ls.open_sweep(folder))))

    few, many = cost(60), cost(240)
    assert (many - few) / 180 < 80  # values checked and hashed; a configuration alone takes more


def test_settings_of_cells_are_those_of_each_cell() -> None:
    for columns in ({"max_lag": [0, 1], "queue_cap": [400, 500, None]}, points(5), {}):
        design = make_spec(BASE, columns, 1).design
        cells = np.arange(design.size)[::-1]
        assert list(design.settings_of(cells)) == [design.settings(int(cell)) for cell in cells]


def test_json_and_csv_are_written_by_the_piece_letter_for_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_table, "ROWS_AT_ONCE", 7)
    random = np.random.default_rng(3)
    values = random.normal(size=30)
    values[[2, 9]] = np.nan, np.inf
    frame = polars.DataFrame(
        {"cell": random.integers(0, 2**53, 30), "law": [f'"{k}", é' for k in range(30)], "mean": values}
    )
    rows = list(frame.iter_rows(named=True))
    facts = {"store": "x", "cells": rows, "content": None}
    pieces = list(document_pieces("sweep", {**facts, "cells": cell_table.plain_rows(frame)}))
    assert "".join(pieces) == json_document("sweep", facts)
    assert max(piece.count('"cell"') for piece in pieces) == 7
    empty = {**facts, "cells": cell_table.plain_rows(frame.clear())}
    assert "".join(document_pieces("sweep", empty)) == json_document("sweep", {**facts, "cells": []})
    lines = list(cell_table.csv_pieces(frame))
    assert "".join(lines) == frame.write_csv()
    assert [text.count("\n") for text in lines] == [1, 7, 7, 7, 7, 2]


@pytest.fixture(scope="module")
def scenarios() -> Any:
    """Give 40 drifts × 2 lags × 3 length laws, with a baseline for each law."""
    axes = {
        "drift_per_version": [round(0.01 + 0.01 * place, 2) for place in range(40)],
        "max_lag": [0, 2],
        "response_length": [{"law": "uniform", "minimum": 20, "maximum": most} for most in (60, 70, 80)],
    }
    return ls.run_sweep(BASE, axes, 2, baseline=True, progress=False)


def test_of_many_scenarios_only_those_shown_are_made(scenarios: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ls.frontier(scenarios)
    assert len(found.parts()) == 120
    made: list[int] = []
    part_at = frontiers.ScenarioParts.__getitem__

    def counted(self: Any, place: Any) -> Any:
        made.extend([] if isinstance(place, slice) else [place])
        return part_at(self, place)

    monkeypatch.setattr(frontiers.ScenarioParts, "__getitem__", counted)
    assert len(str(found).splitlines()) < 120
    assert made == list(range(frontier_table.MOST_SCENARIOS))


def test_parts_hold_the_rows_of_their_scenario_in_order(scenarios: Any) -> None:
    found = ls.frontier(scenarios)
    for place in (0, 57, 119):
        values, part = found.parts()[place]
        own = polars.all_horizontal(*(polars.col(name) == value for name, value in values.items()))
        assert part.frame.equals(found.frame.filter(own))
        assert part.axes == ("max_lag",)
    assert [values for values, _ in found.parts()] == [values for values, _ in found.scenarios]


def test_baselines_of_scenarios_are_those_of_each_alone(scenarios: Any) -> None:
    found = ls.frontier(scenarios)
    for place in (0, 58, 119):
        values, baseline = found.scenarios[place]
        alone = scenarios.sel(response_length=values["response_length"])
        assert baseline is not None
        wanted = float(alone["baseline_trained_tokens_per_second"].mean("seed"))
        assert baseline["trained_tokens_per_second"] == pytest.approx(wanted, rel=1e-14)
        assert baseline["runs"] == 2


def test_a_recommendation_over_many_scenarios_names_the_worst(scenarios: Any) -> None:
    best = ls.recommend(scenarios)
    assert len(best.scenarios) == 120
    assert f"and {120 - MOST_REPORTS:,} more, none with a larger loss" in str(best)
    assert len(str(best).splitlines()) < 70


def test_rows_by_number_are_those_with_each_number() -> None:
    numbers = np.random.default_rng(5).integers(0, 9, 200)
    rows = rows_by_number(numbers, 9)
    assert [np.flatnonzero(numbers == number).tolist() for number in range(9)] == [r.tolist() for r in rows]


def test_a_resume_opens_each_file_of_a_unit_once(grid_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    held = proof.file_holds

    def counted(path: Path, told: str) -> bool:
        opened[path.relative_to(grid_store / "cells.zarr").parts[0]] += 1
        return held(path, told)

    monkeypatch.setattr(proof, "file_holds", counted)
    ls.load_spec(grid_store / "spec.toml").run(store=grid_store, progress=False)
    assert {*big_results.stored_metrics(grid_store), "lag_counts"} == set(opened)
    assert set(opened.values()) == {24}


class CountedSeed(int):
    """A seed that tells how often it was looked up."""

    hashed = 0

    def __hash__(self) -> int:
        CountedSeed.hashed += 1
        return int.__hash__(self)


def test_an_extension_looks_each_seed_up_a_few_times(tmp_path: Path) -> None:
    """A set made anew for each seed asked took hours for one more seed beside a million."""
    stored = make_spec(BASE, {}, 300).replace(seeds=tuple(map(CountedSeed, range(300))))
    asked = make_spec(BASE, {}, 301).replace(seeds=tuple(map(CountedSeed, range(301))))
    CountedSeed.hashed = 0
    assert union_spec(stored, asked, tmp_path).seeds == tuple(range(301))
    assert 600 <= CountedSeed.hashed < 2_000


def test_an_extension_compares_values_with_their_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [round(20 + place / 100, 2) for place in range(500)]
    asked = [math.nextafter(value, math.inf) for value in known] + [19.0, 20.005, 3, "none", 25.0]
    compared = 0
    isclose = math.isclose

    def counted(*arguments: float, **tolerance: float) -> bool:
        nonlocal compared
        compared += 1
        return isclose(*arguments, **tolerance)

    monkeypatch.setattr(math, "isclose", counted)
    found = axes.nearly_all(asked, known)
    assert compared == 500
    assert found == (*known, 19.0, 20.005, 3, "none", 25.0)
    assert found == tuple(axes.nearly(value, known) for value in asked)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmark do in this process what it does in processes of their own."""

    def measure(arguments: Any, package: Any = None) -> tuple[float, float]:
        if arguments[0] == "-c":
            monkeypatch.setattr(sys, "argv", list(arguments[1:]))
            exec(arguments[1], {})
        else:
            run_command(*arguments[2:])
        return 1.0, 0.5

    monkeypatch.setattr(big_results, "measure", measure)


def test_a_slice_of_the_benchmark_writes_its_page(
    in_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(big_results, "stopped_rows", lambda folder, cells: [])
    page = tmp_path / "page.md"
    only = ["--only", "cells"]
    sizes = ["--cells", "500"]
    assert big_results.main([*only, *sizes, "--work", str(tmp_path / "work"), "--output", str(page)]) == 0
    text = page.read_text()
    assert "500 cells (five axes) at two seeds" in text
    for title in ("`lagsweep run` |", "opened in Python", "`lagsweep report`, with images", "one more seed"):
        assert text.count(f"| {title}") == 1


def test_the_benchmark_says_what_takes_more_than_is_promised() -> None:
    rows = [big_results.Row("small", (100.0, 1.0)), big_results.Row("large", (2000.0, 1.0), (3.0, 4.0))]
    assert big_results.too_large(rows) == ["large"]
    assert big_results.grid(rows) == [
        "| what | MiB | s | plain xarray, MiB | plain xarray, s |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| small | 100 | 1.0 | – | – |",
        "| large | 2,000 | 1.0 | 3 | 4.0 |",
    ]
