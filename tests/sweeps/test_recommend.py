"""A recommendation: the choice by brute force, ties by SciPy's paired test, and every reason to doubt it."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up, noise
from oracle.small_sweeps import small_base
from scipy import stats

from lagsweep import LengthLaw, config_at, open_sweep, recommend, run_sweep
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.recommend_command import command
from lagsweep.sweeps.cli.run_command import command as run_command
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

LAGS = {"max_lag": [1, 2, 3, 4]}


def sweep(means, seeds=8, ess=0.95, lag=1, spread=1.0, axes=None):
    """Make a sweep whose cells have these mean throughputs, with noise that is paired by seed."""
    means = np.asarray(means, float)
    values = means[..., None] + spread * noise(seeds, 1) + 0.01 * noise((*means.shape, seeds), 2)
    ess = np.asarray(ess, float)[..., None] + 1e-6 * noise((*means.shape, seeds), 3)
    largest = np.broadcast_to(np.asarray(lag)[..., None], (*means.shape, seeds))
    return made_up(
        axes or LAGS,
        seeds,
        **{THROUGHPUT: values, ESS: ess, "max_lag_observed": largest, "mean_lag": largest},
    )


# The choice ------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(st.floats(1, 100), min_size=4, max_size=4, unique=True),
    st.lists(st.sampled_from([0.5, 0.7, 0.9]), min_size=4, max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sampled_from([None, 0.6, 0.8]),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
)
def test_the_choice_is_the_best_mean_of_those_that_keep_every_bound(
    means, ess, lag, min_ess, max_lag, smallest
):
    ds = sweep(means, ess=ess, lag=lag)
    word = {"minimize" if smallest else "maximize": THROUGHPUT}
    best = recommend(ds, **word, min_ess=min_ess, max_lag=max_lag)

    allowed = [
        k
        for k in range(4)
        if (min_ess is None or ess[k] > min_ess) and (max_lag is None or lag[k] <= max_lag)
    ]
    if not allowed:
        assert best.cell is None
        assert not best.settled
    else:
        mean = [ds[THROUGHPUT][k].mean().item() * (-1 if smallest else 1) for k in range(4)]
        top = max(mean[k] for k in allowed)
        equal = [k for k in allowed if top - mean[k] <= 0.001 * abs(top)]  # the freshest, then the best
        chosen = max(equal, key=lambda k: (round(ds[ESS][k].mean().item(), 6), mean[k]))
        assert best.settings == {"max_lag": LAGS["max_lag"][chosen]}
        assert best.cell == int(ds["cell"][chosen])
        assert best.admissible == len(allowed)
        assert config_at(ds, best.cell, seed=0).max_policy_lag == LAGS["max_lag"][chosen]


def test_the_interval_is_that_of_the_choice_alone():
    ds = sweep([10, 20, 30, 25])
    best = recommend(ds)
    values = ds[THROUGHPUT][2].values
    low, high = stats.t.interval(0.95, 7, loc=values.mean(), scale=stats.sem(values))

    assert (best.low, best.high) == pytest.approx((low, high))
    assert best.figures[ESS] == pytest.approx(0.95)


def test_of_equal_means_the_fresher_then_the_first_is_taken():
    ds = sweep([30, 30, 30, 10], ess=[0.8, 0.9, 0.9, 1.0], spread=0.0)
    ds[THROUGHPUT][:3] = 30.0

    assert recommend(ds).settings == {"max_lag": 2}


def test_the_largest_lag_of_any_seed_counts():
    ds = sweep([10, 20, 30, 40], lag=[0, 1, 1, 1])
    ds["max_lag_observed"][3, 5] = 4

    assert recommend(ds, max_lag=1).settings == {"max_lag": 3}


# Ties ------------------------------------------------------------------------------------------------------


def test_ties_are_what_scipys_paired_test_cannot_resolve_at_bonferronis_level():
    rng = np.random.default_rng(4)
    axes = {"max_lag": list(range(1, 9))}
    values = np.linspace(30, 31, 8)[:, None] + 5 * rng.normal(size=10) + 0.3 * rng.normal(size=(8, 10))
    ds = made_up(axes, 10, **{THROUGHPUT: values, ESS: 0.9 + 0.01 * rng.random((8, 10))})
    best = recommend(ds)

    chosen = int(np.argmax(values.mean(axis=1)))
    expected = {
        k + 1
        for k in range(8)
        if k != chosen and stats.ttest_rel(values[k], values[chosen]).pvalue >= 0.05 / 7
    }
    assert 0 < len(expected) < 7
    assert {tie.settings["max_lag"] for tie in best.ties} == expected
    assert best.comparisons == 7
    shares = [tie.share for tie in best.ties]
    assert shares == sorted(shares, reverse=True)


def test_pairing_by_seed_resolves_what_the_intervals_alone_would_not():
    best = recommend(sweep([30.0, 30.2, 20, 20], spread=10.0))

    assert best.settings == {"max_lag": 2}
    assert best.ties == ()
    assert best.high - best.low > 5


def test_the_very_same_runs_are_called_so_and_never_ask_for_seeds():
    ds = run_sweep(small_base(), {"queue_cap": [5000, 6000], "max_lag": [0, 2]}, 5)
    best = recommend(ds)
    text = str(best)

    assert [(tie.settings, tie.identical) for tie in best.ties] == [({"queue_cap": 6000, "max_lag": 2}, True)]
    assert (best.identical, best.different) == (1, 0)
    assert "The same run at every seed: queue_cap=6000 max_lag=2." in text
    assert "seeds=" not in "".join(
        doubt.command or "" for doubt in best.doubts if "max_lag" not in doubt.text
    )


def test_of_thousands_of_ties_some_are_described_and_all_are_counted():
    axes = {"max_lag": list(range(60)), "queue_cap": list(range(200, 220))}
    ds = made_up(
        axes, 2, **{THROUGHPUT: 5.0, ESS: np.linspace(0.5, 0.9, 1200).reshape(60, 20, 1) // 0.1 / 10}
    )
    best = recommend(ds)
    text = str(best)

    assert best.identical + best.different == 1199
    assert len(best.ties) < 210
    rows = text.count("0.0% [0.0, 0.0]")
    assert rows >= 3
    assert f"and {best.identical - 8:,} more." in " ".join(text.split())


def test_equal_throughput_at_another_ess_is_not_the_same_run():
    ds = sweep([30, 30, 10, 10], ess=[0.9, 0.8, 0.9, 0.9], spread=0.0)
    ds[THROUGHPUT][:2] = 30.0
    (tie,) = recommend(ds).ties

    assert not tie.identical
    assert (tie.share, tie.low, tie.high) == (0.0, 0.0, 0.0)


def test_the_number_of_seeds_asked_for_would_resolve_the_pair():
    gap, size = 0.02, 0.5
    values = np.stack([30 + 0 * noise(20, 1), 30 - gap * 30 + size * noise(20, 2)])
    ds = made_up({"max_lag": [1, 2]}, 20, **{THROUGHPUT: values, ESS: 0.9})
    ds[THROUGHPUT][1] += 0.5  # nearly the choice
    best = recommend(ds)
    (tie,) = best.ties

    spread = (values[1] / 30).std(ddof=1)
    distance = abs(tie.share)
    enough = stats.t.ppf(0.975, tie.seeds_needed - 1) * spread / np.sqrt(tie.seeds_needed)
    too_few = stats.t.ppf(0.975, 0.9 * tie.seeds_needed - 1) * spread / np.sqrt(0.9 * tie.seeds_needed)
    assert enough <= distance * 1.01
    assert too_few > distance * 0.98


# Bounds ----------------------------------------------------------------------------------------------------


def test_a_bound_that_binds_says_what_each_step_gains():
    best = recommend(sweep([10, 20, 30, 40], ess=[0.95, 0.90, 0.80, 0.70], spread=0.1), min_ess=0.85)
    (bound,) = best.bounds

    assert best.settings == {"max_lag": 2}
    assert bound.binds
    assert bound.first_limit == pytest.approx(0.80, abs=1e-5)
    assert bound.first_step.settings == {"max_lag": 3}
    assert bound.first_step.share == pytest.approx(0.5, abs=0.01)
    assert bound.without.settings == {"max_lag": 4}
    assert bound.without.share == pytest.approx(1.0, abs=0.01)
    assert "min_ess = 0.85 binds. At min_ess = 0.8: +50" in str(best).replace("0.7999", "0.8")


def test_a_bound_that_costs_nothing_does_not_bind():
    best = recommend(
        sweep([40, 20, 30, 10], ess=[0.95, 0.90, 0.80, 0.70], lag=[1, 2, 3, 4]), min_ess=0.85, max_lag=3
    )

    assert [bound.binds for bound in best.bounds] == [False, False]
    assert "min_ess = 0.85 does not bind; the choice has ESS 0.9500." in str(best)
    assert "max_lag = 3 does not bind; the choice has a largest lag of 1." in str(best)


def test_each_bound_is_relaxed_alone():
    ds = sweep([10, 20, 30, 40], ess=[0.95, 0.80, 0.95, 0.80], lag=[1, 1, 3, 3], spread=0.1)
    ess, lag = recommend(ds, min_ess=0.9, max_lag=1).bounds

    assert ess.first_step.settings == {"max_lag": 2}
    assert lag.first_step.settings == {"max_lag": 3}
    assert lag.first_limit == 3


# No answer, and doubts -------------------------------------------------------------------------------------


def doubts(best):
    return [doubt.text for doubt in best.doubts]


def test_without_an_admissible_setting_the_nearest_is_named():
    best = recommend(sweep([10, 20, 30, 40], ess=[0.95, 0.90, 0.80, 0.70]), min_ess=0.99)

    assert best.cell is None
    assert "this store has no answer; 0 of 4 settings are admissible" in " ".join(str(best).split())
    assert "min_ess = 0.99: the nearest setting, max_lag=1, has ESS 0.9500" in " ".join(str(best).split())
    assert doubts(best) == ["No setting keeps every bound. A smaller lag limit was not tried:"]
    assert best.doubts[0].command == "run_sweep(base, {..., 'max_lag': [0, 1, 2, 3, 4]}, seeds=8)"
    with pytest.raises(ConfigError):
        config_at(sweep([1, 2, 3, 4]), best.cell)


def _stale(values, cadence):
    """Return a sweep in which the freshest setting is the best one, of runs that publish so seldom."""
    ds = run_sweep(small_base(sync_every_updates=cadence), {"max_lag": values}, 3)
    ds[THROUGHPUT][:] = -np.arange(float(len(values)))[:, None] + 100
    return ds


@pytest.mark.parametrize(
    ("values", "cadence", "smaller"), [([1, 2], 1, "0, 1, 2"), ([1, 2], 2, ""), ([3, 4], 3, "2, 3, 4")]
)
def test_a_lag_limit_with_which_nothing_is_trained_is_not_named(values, cadence, smaller):
    # Weights that are published every k updates are up to k - 1 old when they are used first.
    ds = _stale(values, cadence)
    command = f"run_sweep(base, {{..., 'max_lag': [{smaller}]}}, seeds=3)" if smaller else None
    (none,) = recommend(ds, min_ess=1.0).doubts
    ends = [doubt for doubt in recommend(ds).doubts if "tried" in doubt.text]

    assert none.command == command
    assert none.text == (
        "No setting keeps every bound. A smaller lag limit was not tried:"
        if smaller
        else "No setting keeps every bound; give the sweep other axes or values."
    )
    assert [doubt.command for doubt in ends] == ([command] if smaller else [])


def test_nothing_trained_is_said_to_be_that():
    best = recommend(run_sweep(small_base(batch_tokens=1000), {"queue_cap": [10, 20]}, 3), min_ess=0.9)

    assert best.cell is None
    assert doubts(best) == [
        "No setting trained a batch; simulate one of them to see where it stalls or starves."
    ]


def test_one_seed_is_too_few():
    best = recommend(sweep([10, 20, 30, 25]).isel(seed=[0]))

    assert not best.settled
    assert doubts(best)[0] == "One seed has no spread: no interval, and nothing can be told apart."
    assert best.doubts[0].command == "run_sweep(base, axes, seeds=30)"
    assert "one seed, no interval" in str(best)


def test_missing_and_failed_runs_are_doubts():
    ds = sweep([10, 20, 30, 25])
    ds["status"][0, :3] = 0
    ds["status"][1, 0] = 2
    best = recommend(ds, store="results/x")

    assert doubts(best)[:2] == [
        "3 of 32 runs are not done yet.",
        "1 run failed; its cell stands on fewer seeds.",
    ]
    assert best.doubts[0].command == "lagsweep run results/x/spec.toml --store results/x"
    assert best.doubts[1].command == "lagsweep run results/x/spec.toml --store results/x --retry-failed"


def test_a_choice_inside_the_grid_with_no_ties_is_settled():
    best = recommend(sweep([10, 20, 30, 25], spread=0.1))

    assert best.settled
    assert best.doubts == ()
    assert str(best).startswith("Largest trained_tokens_per_second: settled; 4 of 4 settings are admissible.")


@pytest.mark.parametrize(
    ("means", "values", "expected"),
    [
        ([10, 20, 30], [1, 2, 4], "[1, 2, 4, 8]"),
        ([10, 20, 30], [1, 2, 3], "[1, 2, 3, 4]"),
        ([30, 20, 10], [2, 4, 6], "[1, 2, 4, 6]"),
        ([30, 20, 10], [0, 1, 2], None),
        ([10, 20, 20.0001], [1, 2, 3], None),
    ],
    ids=["geometric", "linear", "downwards", "natural end", "flat"],
)
def test_the_edge_of_the_grid_is_a_doubt_where_going_on_may_help(means, values, expected):
    best = recommend(sweep(means, axes={"max_lag": values}, spread=0.0))
    found = [doubt.command for doubt in best.doubts if "tried" in doubt.text]

    assert found == (
        [] if expected is None else [f"run_sweep(base, {{..., 'max_lag': {expected}}}, seeds=8)"]
    )


def test_an_ess_that_may_lie_on_either_side_of_the_bound_is_a_doubt():
    ds = made_up(LAGS, 8, **{THROUGHPUT: np.array([[10.0], [30.0], [20.0], [5.0]]), "max_lag_observed": 1})
    ds[ESS] = (ds[ESS].dims, 0.8 + np.array([[0.1], [0.001], [0.1], [0.1]]) + 0.01 * noise((4, 8), 1))
    (doubt,) = [doubt for doubt in recommend(ds, min_ess=0.8).doubts if "either side" in doubt.text]
    ds[ESS][1] -= 0.002
    (other,) = [doubt for doubt in recommend(ds, min_ess=0.8).doubts if "may keep" in doubt.text]

    assert "may lie on either side of min_ess = 0.8." in doubt.text
    assert other.text.startswith("max_lag=2 is better by +50.0% and may keep min_ess: ")
    assert int(doubt.command.partition("seeds=")[2].rstrip(")")) > 8


# Scenarios -------------------------------------------------------------------------------------------------

SCENARIOS = {"response_length": [LengthLaw.uniform(20, 80), LengthLaw.fixed(50)], "max_lag": [1, 2, 3]}


def test_over_length_laws_the_smallest_worst_loss_is_chosen():
    gains = np.array([[100.0, 90.0, 50.0], [50.0, 90.0, 100.0]])
    ds = sweep(gains, axes=SCENARIOS, spread=0.1)
    best = recommend(ds)

    losses = (gains.max(axis=1, keepdims=True) - gains) / gains.max(axis=1, keepdims=True)
    assert best.settings == {
        "response_length": "uniform(20, 80)",
        "max_lag": 1 + int(losses.max(axis=0).argmin()),
    }
    assert best.scenario_axes == ("response_length",)
    assert [one.loss for one in best.scenarios] == pytest.approx([0.1, 0.1], abs=0.001)
    assert [one.best.settings["max_lag"] for one in best.scenarios] == [1, 3]
    assert best.law_hint is None
    text = " ".join(str(best).split())
    assert "response_length is nobody's choice" in text
    assert "its figures at response_length=uniform(20, 80):" in text


def test_a_setting_must_keep_the_bounds_in_every_scenario():
    ess = np.array([[0.95, 0.95, 0.95], [0.95, 0.5, 0.95]])
    best = recommend(sweep([[10, 90, 20], [10, 90, 20]], ess=ess, axes=SCENARIOS, spread=0.1), min_ess=0.9)

    assert best.settings["max_lag"] == 3
    assert best.admissible == 2
    (bound,) = best.bounds
    assert bound.first_limit == pytest.approx(0.5, abs=1e-4)


def test_any_axis_can_be_a_scenario():
    axes = {"queue_cap": [200, 400], "max_lag": [1, 2]}
    ds = sweep([[100, 80], [10, 50]], axes=axes, spread=0.1)

    assert recommend(ds).settings == {"queue_cap": 200, "max_lag": 1}
    assert recommend(ds, scenarios=["queue_cap"]).settings == {"queue_cap": 200, "max_lag": 2}


def test_one_law_alone_is_named_with_the_way_to_another():
    ds = run_sweep(small_base(response_length=LengthLaw.shipped("aime-rl-1000")), {"max_lag": [1, 2]}, 3)
    hint = recommend(ds, store="r").law_hint

    assert hint.text.startswith("All of this holds for one length law, aime-rl-1000.")
    assert hint.command == (
        "lagsweep run r/spec.toml --store r --axis response_length=shipped:aime-rl-1000,shipped:aime-rl-500"
    )


# Errors, text, JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maximize": "tokens"}, "metric: must be one of the dataset's (got 'tokens')."),
        ({"maximize": THROUGHPUT, "minimize": ESS}, "maximize: excludes minimize (got"),
        ({"min_ess": 1.5}, "min_ess: must be between 0 and 1 (got 1.5). Give 0.9."),
        ({"min_ess": float("nan")}, "min_ess: must be between 0 and 1 (got nan). Give 0.9."),
        ({"min_ess": True}, "min_ess: must be between 0 and 1 (got True). Give 0.9."),
        ({"max_lag": 1.5}, "max_lag: must be a whole number from 0 (got 1.5). Give 2."),
        ({"confidence": 1.0}, "confidence: must be between 0 and 1 (got 1.0). Give 0.95."),
        (
            {"scenarios": ["max_lagg"]},
            "scenarios: must name axes of the sweep (got 'max_lagg'). Did you mean",
        ),
    ],
)
def test_a_mistake_is_named(options, text):
    with pytest.raises(ConfigError) as caught:
        recommend(sweep([1, 2, 3, 4]), **options)

    assert str(caught.value).startswith(text)


def test_the_text_fits_80_columns_but_for_commands():
    axes = {
        "max_lag": [1, 2],
        "queue_cap": [200, 400],
        "rollout_workers": [2, 3],
        "train_overhead_seconds": [0.2, 0.3],
    }
    for best in (
        recommend(run_sweep(small_base(), axes, 3), min_ess=0.9),
        recommend(run_sweep(small_base(), axes, 3), min_ess=0.99, max_lag=0),
        recommend(run_sweep(small_base(), SCENARIOS, 3), min_ess=0.9),
    ):
        lines = [line for line in str(best).splitlines() if "run_sweep(" not in line]
        assert max(map(len, lines)) <= 80


def test_everything_is_plain_data_too():
    plain = json.loads(json.dumps(recommend(sweep([10, 20, 30, 25]), min_ess=0.9).to_dict(), allow_nan=False))

    assert plain["settings"] == {"max_lag": 3}
    assert plain["bounds"][0]["binds"] is False
    assert plain["limits"]["trainer"].keys() == {"training", "waits: batch not full"}
    assert plain["settled"] is True


# The command -----------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "sweep"
    run_sweep(
        small_base(response_length=LengthLaw.lognormal(40, 0.5, 10, 90)), {"max_lag": [1, 2]}, 3, store=folder
    )
    return folder


def _run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_command_prints_the_same_as_python(store):
    outcome = _run(store, "--min-ess", 0.5)

    assert outcome.return_value == 0
    assert outcome.stdout.rstrip("\n") == str(recommend(open_sweep(store), min_ess=0.5, store=store))
    plain = json.loads(_run(store, "--min-ess", 0.5, "--json").stdout)
    assert plain["cell"] == recommend(open_sweep(store), min_ess=0.5).cell


def test_no_answer_is_exit_code_1(store):
    assert _run(store, "--min-ess", 1).return_value == 1


def test_the_commands_that_would_settle_it_really_run(store):
    best = recommend(open_sweep(store))
    edge = next(doubt for doubt in best.doubts if "tried" in doubt.text)
    for line in (edge.command, best.law_hint.command):
        words = shlex.split(line)
        assert words[:2] == ["lagsweep", "run"]
        outcome = CliRunner().invoke(run_command, [*words[2:], "--quiet"], standalone_mode=False)
        assert outcome.exception is None, outcome.output
    ds = open_sweep(store)

    assert ds["max_lag"].values.tolist() == [1, 2, 3]
    assert ds.sizes["response_length"] == 2
    assert bool(ds.attrs["complete"])


def test_asking_for_seeds_adds_them(store):
    best = recommend(open_sweep(store).isel(seed=[0]), store=store)
    words = shlex.split(best.doubts[0].command)
    outcome = CliRunner().invoke(run_command, [*words[2:], "--quiet"], standalone_mode=False)

    assert outcome.exception is None, outcome.output
    assert open_sweep(store).sizes["seed"] == 30


def test_points_are_recommended_too():
    spec = make_spec(small_base(), [{"max_lag": [1, 2, 3], "queue_cap": [150, 300, 500]}], 4)
    best = recommend(run_spec(spec))

    assert set(best.settings) == {"max_lag", "queue_cap"}
