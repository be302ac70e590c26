"""Many configurations of the general loop in one call: each gives exactly what it gives by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies.failing_configs import failing_settings
from strategies.general_configs import general_settings, to_config

from lagsweep import Engine, LengthLaw, Limit, PipelineConfig, SecondsLaw
from lagsweep.kernels.pipeline.metrics import UNUSED_VALUES, hidden_metrics
from lagsweep.sweeps.runs.general import GeneralRun
from lagsweep.sweeps.runs.general_cells import GeneralCells
from lagsweep.sweeps.runs.many import general_batch
from lagsweep.sweeps.runs.parameters import general_tables

BASE = PipelineConfig(rollout_workers=4, duration_seconds=90.0, queue_order="freshest", publication="pause")
# Of each kind two, apart from each other: they run together, in another order than they stand in.
MIXED = [
    BASE,
    BASE.replace(rollout_workers=9),
    BASE.replace(engine=Engine(step_seconds=0.02), decode_tokens_per_second=50.0),
    BASE.replace(environment_seconds=SecondsLaw.uniform(0.5, 2.0)),
    BASE.replace(decode_slowdown_per_rollout=0.1),
    BASE.replace(max_policy_lag=4),
    BASE.replace(trainer_mtbf_seconds=40.0, restart_seconds=3.0),
    BASE.replace(rollout_workers=9, max_policy_lag=0),
    BASE.replace(limits=[Limit("started", "popped", 5)]),
    BASE.replace(group_size=2, max_queue_tokens=None, train_tokens_per_second=30.0),
    BASE.replace(decode_slowdown_per_rollout=0.1, train_overhead_seconds=0.0),
    BASE.replace(environment_seconds=SecondsLaw.fixed(1.0)),
]


def alone(config, seed):
    """Return the report and the lag counts of one run that shares nothing with others."""
    run = GeneralRun(config.replace(seed=int(seed)))
    run.advance()
    return run.summary(), run.lag_counts


def run_all(configs, seeds):
    """Run all configurations at some seeds: reports, lag counts, and what was finished after each step."""
    cells, runs, told = GeneralCells(configs), len(configs) * len(seeds), []
    metrics, lags = np.zeros(runs, cells.REPORT), np.zeros((runs, cells.lag_bins), np.int64)
    cells.begin(np.array(seeds, np.uint64), metrics, lags)
    while cells.finished < runs:
        cells.step()
        told.append(cells.finished)
    return metrics, lags, told


def check_against_single_runs(configs, seeds):
    metrics, lags, told = run_all(configs, seeds)
    assert told == sorted(told)
    for run, (seed, config) in enumerate(itertools.product(seeds, configs)):
        report, counts = alone(config, seed)
        assert metrics[run].tobytes() == report.tobytes(), run
        np.testing.assert_array_equal(lags[run], counts)


def test_mixed_configurations_give_what_each_gives_alone():
    check_against_single_runs(MIXED, [3, 0, 2**64 - 1])


def test_configurations_that_are_alike_give_at_all_seeds_what_each_gives_alone():
    check_against_single_runs([BASE, BASE.replace(max_policy_lag=0)], [7, 7, 2**64 - 1, 0])


@given(
    st.lists(st.one_of(general_settings(), failing_settings()), min_size=1, max_size=3),
    st.integers(0, 2**64 - 1),
)
def test_drawn_configurations_give_what_each_gives_alone(drawn, seed):
    firsts = [to_config(settings) for settings in drawn]
    # The second half is alike to the first, and stands apart from it.
    configs = [*firsts, *(one.replace(train_overhead_seconds=0.75) for one in firsts)]

    together = general_batch(configs, np.array([seed], np.uint64))

    for place, config in enumerate(configs):
        report, counts = alone(config, seed)
        unused = hidden_metrics(config.options_in_use)
        for name, values in together.metrics.items():
            expected = UNUSED_VALUES[name] if name in unused else report[name]
            np.testing.assert_array_equal(values[place, 0], expected, err_msg=name)
        np.testing.assert_array_equal(together.lag_counts[place, 0], counts)


@pytest.mark.parametrize("budget", [1, 7, 60, 200])
@pytest.mark.parametrize("configs", [MIXED, [BASE, BASE.replace(max_policy_lag=0)]], ids=["mixed", "alike"])
def test_a_small_budget_comes_back_in_the_middle_and_changes_nothing(monkeypatch, budget, configs):
    whole, lags, few = run_all(configs, [5, 6])
    monkeypatch.setattr(GeneralRun, "budget", budget)
    pieces, other_lags, many = run_all(configs, [5, 6])

    assert pieces.tobytes() == whole.tobytes()
    np.testing.assert_array_equal(other_lags, lags)
    assert len(many) > len(few)
    assert many == sorted(many)


def test_configurations_that_are_alike_run_in_one_call():
    configs = [BASE.replace(train_overhead_seconds=0.1 * step) for step in range(30)]
    _, _, told = run_all(configs, range(20))
    # At first the groups' records grow, a call each time.
    assert told[-1] == 600
    assert len(told) < 8


def test_a_run_that_would_not_fit_fails_alone(monkeypatch):
    full = {"max_queue_tokens": None, "stale_check": "never", "duration_seconds": 600.0}
    monkeypatch.setattr("lagsweep.sweeps.runs.general.LARGEST_LIVE_ROLLOUTS", 60)
    base = BASE.replace(queue_order="fifo")
    too_large = base.replace(train_tokens_per_second=1.0, **full)
    configs = [base, too_large, base.replace(rollout_workers=2), too_large, base.replace(max_policy_lag=0)]

    result = general_batch(configs, np.arange(2, dtype=np.uint64))

    assert result.status.tolist() == [[1, 1], [2, 2], [1, 1], [2, 2], [1, 1]]
    assert set(result.reasons) == {(1, 0), (1, 1), (3, 0), (3, 1)}
    assert all("got None" in str(why) for why in result.reasons.values()), result.reasons
    for place in (0, 2, 4):
        for seed in range(2):
            report, counts = alone(configs[place], seed)
            assert result.metrics["trained_tokens"][place, seed] == report["trained_tokens"]
            assert result.metrics["mean_token_lag"][place, seed] == report["mean_token_lag"]
            np.testing.assert_array_equal(result.lag_counts[place, seed], counts)


def test_a_used_run_that_begins_again_is_as_new():
    run, new = GeneralRun(BASE), GeneralRun(BASE)
    assert not run.advance(40)
    run.begin(0)
    new.make_room(len(run.held.groups))
    new.begin(0)

    groups = new.held.groups
    assert groups["next"].tolist() == [0, *range(2, len(groups)), 0]
    assert (int(new.state.free_head), int(new.state.free), int(new.state.idle)) == (1, len(groups) - 1, 4)
    assert new.held.slots["idle_stack"].tolist() == [3, 2, 1, 0]
    # What a member holds is written when its group is admitted.
    for name, array in new.arrays().items():
        if name not in ("members", "member_versions"):
            np.testing.assert_array_equal(run.arrays()[name], array, err_msg=name)


def test_tables_of_equal_laws_are_made_once_and_are_those_of_the_law():
    laws = [LengthLaw.uniform(5, 9), LengthLaw.uniform(5, 10), LengthLaw.uniform(5, 9)]
    tables = [general_tables(BASE.replace(response_length=law)) for law in laws]

    assert tables[0].decile_edges is tables[2].decile_edges
    for law, table in zip(laws, tables):
        np.testing.assert_array_equal(table.cdf, law.cdf)
        assert not table.cdf.flags.writeable
        assert not table.limits.flags.writeable


def test_whether_a_run_fits_does_not_depend_on_what_ran_before(monkeypatch):
    limit = Limit("started", "popped", 28)
    alone = BASE.replace(batch_groups=12, batch_tokens=None, limits=(limit,), duration_seconds=60.0)
    beside = alone.replace(admit="batch")
    for largest in range(20, 60, 5):
        monkeypatch.setattr("lagsweep.sweeps.runs.general.LARGEST_LIVE_ROLLOUTS", largest)
        by_itself = general_batch([alone], np.arange(1, dtype=np.uint64)).status
        after_another = general_batch([beside, alone], np.arange(1, dtype=np.uint64)).status
        assert after_another[1].tolist() == by_itself[0].tolist(), largest
