"""Rules that stop adding seeds: what they ask for, that they keep what they promise, and what they save."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr
from oracle.small_sweeps import small_base, tree
from scipy.stats import t

from lagsweep.errors import ConfigError
from lagsweep.kernels.intervals import student
from lagsweep.sweeps.execute.plan import plan_parts
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.stopping import parse_rule
from lagsweep.sweeps.store.store import SweepStore
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import run_spec

AXES = {"max_lag": [0, 1, 3], "rollout_workers": [1, 3]}
RULE = "trained_tokens_per_second within 1%"


def spec(until=RULE, seeds=256, axes=AXES):
    return make_spec(small_base(duration_seconds=60.0), axes, seeds, baseline=True, until=until)


class Notes(Progress):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("updates within 1%", ("updates", "within", 0.01, True, 1, 0.95)),
        ("mean_lag within 0.5 at 99%", ("mean_lag", "within", 0.5, False, 1, 0.99)),
        ("mean_lag within 1e-3", ("mean_lag", "within", 1e-3, False, 1, 0.95)),
        ("best updates resolved", ("updates", "best", 0.0, False, 1, 0.95)),
        ("lowest seconds_per_update resolved", ("seconds_per_update", "best", 0.0, False, -1, 0.95)),
        ("difference to the best of updates resolved", ("updates", "best", 0.0, False, 1, 0.95)),
        ("best updates resolved within 0.5% at 90%", ("updates", "best", 0.005, True, 1, 0.9)),
    ],
)
def test_rules_are_read(text, expected):
    rule = parse_rule(text)

    got = (rule.metric, rule.kind, rule.amount, rule.relative, rule.sign, rule.confidence)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("updates", "until: must read"),
        ("updates below 1%", "until: must read"),
        (3, "until: must read"),
        ("update within 1%", "Did you mean 'updates'"),
        ("updates within 0%", "must have a width above 0"),
        ("updates within 1% at 20%", "50% to 100%"),
    ],
)
def test_what_is_no_rule_is_refused(text, says):
    with pytest.raises(ConfigError, match=says):
        parse_rule(text)


def test_a_metric_that_the_sweep_does_not_report_is_refused():
    with pytest.raises(ConfigError, match="until: must name a metric that this sweep reports"):
        spec("mean_token_lag within 1%")


def test_looks_double_up_to_the_seeds():
    rule = parse_rule("updates within 1%")

    assert rule.looks(1000) == [32, 64, 128, 256, 512, 1000]
    assert rule.looks(10) == [10]


@pytest.mark.parametrize(
    ("shape", "unit_runs", "chunks"), [((3, 2), 10**6, (3, 2, 32)), ((30, 20), 640, (1, 20, 32))]
)
def test_units_end_at_the_looks(shape, unit_runs, chunks):
    axes = {"max_lag": list(range(shape[0])), "sync_cadence": list(range(1, shape[1] + 1))}
    spec = make_spec(small_base(), axes, 1000, until="updates within 1%")

    assert plan_parts(spec, unit_runs)[0].layout.chunks == chunks


def test_a_cell_stops_when_its_interval_at_the_shared_level_is_narrow():
    values = np.random.default_rng(0).normal([[10.0], [10.0]], [[1.0], [4.0]], (2, 64))
    half = t.ppf(1 - 0.05 / 3 / 2, 63) * values.std(axis=1, ddof=1) / 8
    for rule in (f"updates within {half[1]}", f"updates within {100 * half[1] / values[1].mean()}%"):
        enough = parse_rule(rule).enough(values, np.array([True, True]), 3)
        assert enough.tolist() == [True, True]
    smaller = parse_rule(f"updates within {half[1] * 0.999}")
    assert smaller.enough(values, np.array([True, True]), 3).tolist() == [True, False]
    assert smaller.enough(values, np.array([False, True]), 3).tolist() == [False, False]


def test_a_cell_without_values_gets_every_seed():
    values = np.full((1, 32), np.nan)

    assert not parse_rule("mean_lag within 1%").enough(values, np.array([True]), 2).any()


def play(rule, draw, cells, seeds, rng):
    """Play a rule on made-up values; returns the values and each cell's seeds at its stop."""
    values = draw(rng, cells, seeds)
    looks = rule.looks(seeds)
    open_cells, stopped = np.ones(cells, bool), np.full(cells, seeds)
    for look in looks:
        seen = np.where(open_cells[:, None], values[:, :look], np.nan)
        done = rule.enough(seen, open_cells, len(looks))
        stopped[done] = look
        open_cells &= ~done
    return values, stopped, open_cells


@pytest.mark.parametrize("law", ["normal", "skewed", "lumpy"])
def test_the_interval_at_the_stop_covers_the_mean_as_often_as_stated(law):
    """2,000 made-up cells each; also that stopping on an ordinary interval would not."""
    draws = {
        "normal": (lambda rng, c, s: rng.normal(10, 2, (c, s)), 10.0, 2.0),
        "skewed": (lambda rng, c, s: rng.gamma(4.0, 2.5, (c, s)), 10.0, 5.0),
        "lumpy": (lambda rng, c, s: rng.poisson(5.0, (c, s)).astype(float), 5.0, 5.0**0.5),
    }
    draw, mean, spread = draws[law]
    width = 0.45 * spread  # so that stops are spread over the looks
    rule = parse_rule(f"updates within {width}")
    cells, seeds = 2000, 512

    values, stopped, still_open = play(rule, draw, cells, seeds, np.random.default_rng(1))

    looks = len(rule.looks(seeds))
    covered = 0
    for cell in np.flatnonzero(~still_open):
        average, half = student(values[cell : cell + 1, : stopped[cell]], 1 - 0.05 / looks / 2)
        assert half[0] <= width
        covered += abs(average[0] - mean) <= half[0]
    assert not still_open.any()
    assert len(set(stopped.tolist())) > 1
    assert covered / cells >= 0.95


def test_an_ordinary_interval_looked_at_again_and_again_would_cover_too_rarely():
    """Why the confidence is shared among the looks: the canary of the test above."""
    values = np.random.default_rng(2).normal(0, 1, (2000, 512))
    counts = np.arange(1, 513)
    averages = np.cumsum(values, axis=1) / counts
    spreads = np.sqrt(np.cumsum(values**2, axis=1) / counts - averages**2)
    misses = np.abs(averages) > 1.96 * spreads / np.sqrt(counts)

    assert misses[:, 31:].any(axis=1).mean() > 0.2
    assert misses[:, 511].mean() < 0.07


@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0])
def test_the_best_cell_is_dropped_as_rarely_as_stated(gap):
    rule, dropped, runs = parse_rule("best updates resolved"), 0, 300
    rng = np.random.default_rng(3)
    truth = np.array([5.0, 5.0 - gap, 4.0 - gap, 3.0 - gap])

    for _ in range(runs):
        _, stopped, still_open = play(
            rule,
            lambda rng, c, s: truth[:, None] + rng.normal(0, 2, (1, s)) + rng.normal(0, 1, (c, s)),
            4,
            256,
            rng,
        )
        # The best is dropped if it was stopped while another went on.
        dropped += bool(stopped[0] < stopped.max() or (not still_open[0] and still_open.any()))

    assert dropped / runs <= 0.05


def test_the_leader_goes_on_while_anyone_is_unresolved_and_ties_end():
    rule = parse_rule("best updates resolved")
    noise = np.random.default_rng(4).normal(0, 1, 64)
    values = np.stack([10 + noise, 10 + noise, 5 + noise + 0.1 * noise**2, 10 + noise[::-1]])

    enough = rule.enough(values, np.ones(4, bool), 1)

    assert enough.tolist() == [False, True, True, False]
    assert rule.enough(values[:3], np.ones(3, bool), 1).all()


def test_a_difference_that_does_not_matter_is_settled_too():
    noise = np.random.default_rng(5).normal(0, 0.1, (2, 64))
    values = np.array([[10.0], [9.99]]) + noise

    assert not parse_rule("best updates resolved").enough(values, np.ones(2, bool), 1).any()
    assert parse_rule("best updates resolved within 1%").enough(values, np.ones(2, bool), 1).all()


def test_the_smallest_can_be_the_best():
    values = np.array([[1.0], [2.0]]) + np.random.default_rng(6).normal(0, 0.1, (2, 64))

    assert parse_rule("lowest updates resolved").enough(values, np.array([True, True]), 1).all()
    mixed = np.concatenate([values, values[:1] + np.random.default_rng(7).normal(0, 0.1, (1, 64))])
    assert parse_rule("lowest updates resolved").enough(mixed, np.ones(3, bool), 1).tolist() == [
        False,
        True,
        False,
    ]


def test_seeds_are_added_only_where_they_are_needed():
    notes = Notes()

    ds = run_spec(spec(), progress=notes)

    seeds = (ds.status == 1).sum("seed").values
    assert set(seeds.reshape(-1).tolist()) <= {32, 64, 128, 256}
    assert seeds.min() < seeds.max()
    for place in np.ndindex(seeds.shape):
        count = seeds[place]
        run = ds.trained_tokens_per_second.values[place]
        assert np.isfinite(run[:count]).all()
        assert np.isnan(run[count:]).all()
        if count < 256:
            mean, half = student(run[None, :count], 1 - 0.05 / 4 / 2)
            assert half[0] <= 0.01 * mean[0]
    fixed = seeds.max() * seeds.size
    saved = 1 - seeds.sum() / fixed
    assert (
        f"until: {seeds.sum():,} runs in place of {fixed:,} at equal seeds, {saved:.0%} saved" in notes.notes
    )
    assert (ds.baseline_status == 1).all()


def test_the_runs_that_are_done_are_those_of_the_plain_sweep():
    ds, plain = run_spec(spec()), run_spec(spec(until=None))

    done = ds.status == 1
    assert (ds.trained_tokens.values[done.values] == plain.trained_tokens.values[done.values]).all()


def test_cells_that_run_out_of_seeds_are_told():
    notes = Notes()

    run_spec(spec("trained_tokens_per_second within 0.01%", seeds=40), progress=notes)

    assert any("6 cells ran out of seeds first; give more than 40" in note for note in notes.notes)


def test_stored_and_in_memory_are_the_same_and_verify_finds_nothing(tmp_path):
    stored = run_into_store(spec(), tmp_path / "sweep", unit_runs=100)

    xr.testing.assert_identical(stored.load(), run_spec(spec()))
    assert verify_store(tmp_path / "sweep", everything=True).findings == []


@pytest.mark.parametrize("after", [40, 200, 500])
def test_stopped_and_resumed_ends_byte_for_byte_the_same(tmp_path, after):
    import threading

    cancel = threading.Event()

    class StopLater(Progress):
        runs = 0

        def advance(self, runs):
            self.runs += runs
            if self.runs >= after:
                cancel.set()

    run_into_store(spec(), tmp_path / "undisturbed", unit_runs=100)
    with pytest.raises(Cancelled):
        run_into_store(spec(), tmp_path / "sweep", unit_runs=100, progress=StopLater(), cancel=cancel)
    assert not SweepStore(tmp_path / "sweep").complete

    run_into_store(spec(), tmp_path / "sweep")

    assert tree(tmp_path / "sweep") == tree(tmp_path / "undisturbed")


@pytest.mark.parametrize("rule", ["mean_lag within 20%", "lowest mean_lag resolved"])
def test_a_cell_without_a_value_gets_no_more_seeds_and_that_is_said_at_the_first_look(rule, tmp_path):
    axes = {"train_overhead_seconds": [0.5, 0.6, 1000.0]}
    notes = Notes()
    ds = run_into_store(spec(rule, 200, axes), tmp_path / "sweep", progress=notes)
    counts = (ds["status"] == 1).sum("seed").values.tolist()
    told = [note for note in notes.notes if note.startswith("until: ")]

    assert counts[2] == 32
    assert told[0] == "until: mean_lag has no value in 1 cell; more seeds do not help"
    assert sum("has no value" in note for note in told) == 1
    assert told[1].startswith("until: 32 seeds, ")
    assert int(re.search(r"(\d+) of 3 cells", told[1])[1]) <= 2
    assert ds.attrs["complete"] == 1
    assert verify_store(tmp_path / "sweep").sound
    xr.testing.assert_identical(ds.load(), run_spec(spec(rule, 200, axes)))


def test_where_no_cell_has_a_value_the_first_look_is_the_last():
    notes = Notes()
    ds = run_spec(
        spec("mean_lag within 1%", 200, {"train_overhead_seconds": [900.0, 1000.0]}), progress=notes
    )

    assert (ds["status"] == 1).sum("seed").values.tolist() == [32, 32]
    assert "until: 32 seeds, 0 of 2 cells need more" in notes.notes
    assert not any("ran out of seeds" in note for note in notes.notes)
