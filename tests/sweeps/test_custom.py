"""Rules, lengths and metrics of a user's own: in one run they equal the kernels where they say the same."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from strategies.custom_rules import (
    AlwaysOpen,
    EveryOther,
    Growing,
    Limits,
    LongestStep,
    QueuedTokens,
    SameLength,
    TrainedRollouts,
)
from strategies.general_configs import general_settings, to_config

import lagsweep as ls
from lagsweep.custom import AdmissionRule, Custom, LengthProcess, RunMetric, uniforms
from lagsweep.kernels.errors import ConfigError
from lagsweep.sweeps.custom.rules import CUSTOM_STREAM
from lagsweep.sweeps.runs.general import simulate_general
from lagsweep.sweeps.testing.trainer_settings import trainer_settings

BASE = ls.PipelineConfig(duration_seconds=60, max_queue_tokens=None)


def assert_equal_runs(ours, theirs, *, causes=True):
    """Every number and row of two runs, bit for bit."""
    for name, value in theirs.metrics.items():
        np.testing.assert_equal(ours.metrics[name], value, err_msg=name)
    assert ours.lag_counts.tolist() == theirs.lag_counts.tolist()
    for table in ("batches", "timeline", "rollouts"):
        for one, other in zip(getattr(ours, table), getattr(theirs, table), strict=True):
            for column, value in other.items():
                if causes or column != "slots_bound_by":
                    np.testing.assert_equal(one[column], value, err_msg=f"{table} {column}")


@settings(max_examples=60)
@given(trainer_settings())
def test_with_nothing_custom_a_run_equals_the_kernels(drawn):
    config = to_config(drawn)

    assert_equal_runs(ls.simulate_custom(config, rollouts=True), simulate_general(config, rollouts=True))


@settings(max_examples=60)
@given(trainer_settings())
def test_rules_that_change_nothing_give_the_kernels_run(drawn):
    config = to_config(drawn)

    asked = ls.simulate_custom(config, AlwaysOpen(), SameLength(), rollouts=True)

    assert_equal_runs(asked, simulate_general(config, rollouts=True))


@settings(max_examples=100)
@given(general_settings())
def test_the_limits_written_in_python_give_the_run_of_the_limits(drawn):
    config = to_config(drawn)
    limits = [(limit.count, limit.done, limit.groups) for limit in config.limits]

    in_python = ls.simulate_custom(config.replace(limits=()), Limits(limits), rollouts=True)

    assert_equal_runs(in_python, simulate_general(config, rollouts=True), causes=False)


@pytest.mark.parametrize("seed", [0, 2**53 + 1, 2**63, 2**64 - 1])
def test_uniforms_take_every_seed_that_a_run_takes(seed):
    key = np.array([seed, CUSTOM_STREAM], np.uint64)
    expected = np.random.Generator(np.random.Philox(key=key, counter=[0, 4, 0, 0])).random(2)

    assert uniforms(seed, 3, 2) == expected.tolist()
    with pytest.raises(ConfigError, match="seed: must be at least 0 and at most"):
        uniforms(seed + 2**64, 3)


def test_a_length_process_sees_the_draw_that_the_law_reads():
    class Law(LengthProcess):
        def begin(self, config, seed):
            self.law = config.response_length

        def tokens(self, rollout):
            return self.law.minimum + int(np.searchsorted(self.law.cdf, rollout.uniform, side="right"))

    asked = ls.simulate_custom(BASE, length=Law(), rollouts=True)

    assert_equal_runs(asked, simulate_general(BASE, rollouts=True))


def test_a_function_of_numba_gives_the_run_of_the_same_rule_in_python():
    @numba.njit
    def cap(state):
        return state.queued_tokens < 5000

    @numba.njit
    def half(rollout):
        return max(1, rollout.law_tokens // 2)

    def half_in_python(rollout):
        return max(1, rollout.law_tokens // 2)

    config = BASE.replace(publication="pause")
    compiled = ls.simulate_custom(config, cap, half, rollouts=True)

    assert_equal_runs(compiled, ls.simulate_custom(config, QueuedTokens(5000), half_in_python, rollouts=True))
    assert_equal_runs(ls.simulate_custom(config, cap), ls.simulate_custom(config, QueuedTokens(5000)))
    mixed = ls.simulate_custom(config, QueuedTokens(5000), half, rollouts=True)
    assert_equal_runs(compiled, mixed)


def test_idle_time_under_a_rule_has_a_cause_of_its_own_and_all_sums_to_slots_times_time():
    run = ls.simulate_custom(BASE, QueuedTokens(2000))
    plain = ls.simulate_pipeline(BASE.replace(max_queue_tokens=2000))

    assert run.slot_ticks["custom rule"] == plain.idle_slot_seconds * 1e6 > 0
    assert sum(run.slot_ticks.values()) == 8 * 60_000_000
    assert run.slots_limits_seconds == plain.idle_slot_seconds
    assert "custom rule" in {row.slots_bound_by for row in run.timeline}


def test_the_sequential_loop_asks_no_admission_rule_but_the_length_process():
    config = BASE.replace(mode="sequential", max_queue_tokens=7000)

    assert_equal_runs(
        ls.simulate_custom(config, Limits([("started", "popped", 0)])), simulate_general(config)
    )
    assert ls.simulate_custom(config, length=lambda rollout: 16).generated_tokens % 16 == 0


def test_a_rule_that_keeps_something_starts_anew_in_each_run():
    rule = EveryOther()
    first, second = ls.simulate_custom(BASE, rule), ls.simulate_custom(BASE, rule)

    assert_equal_runs(first, second)
    assert rule.asked == 0


def test_metrics_of_the_user_are_attributes_of_the_result():
    run = ls.simulate_custom(BASE, metrics=[LongestStep(), TrainedRollouts()])

    assert run.longest_step_seconds == max(batch.end - batch.start for batch in run.batches)
    assert run.trained_again == run.trained_rollouts
    assert list(run.metrics)[-2:] == ["longest_step_seconds", "trained_again"]


def test_lengths_of_a_process_change_the_run_and_nothing_of_other_draws():
    grown = ls.simulate_custom(BASE, length=Growing(200), rollouts=True)
    plain = ls.simulate_pipeline(BASE, rollouts=True)

    changes = [one.tokens - other.tokens for one, other in zip(grown.rollouts, plain.rollouts)]
    assert changes[:8] == [0] * 8
    assert min(changes) == 0 < max(changes)


def test_free_draws_depend_on_seed_and_number_alone():
    assert uniforms(3, 7, 9)[:4] == uniforms(3, 7, 4)
    assert len({uniforms(seed, number)[0] for seed in range(10) for number in range(10)}) == 100
    assert 0.45 < np.mean([uniforms(0, number, 8) for number in range(500)]) < 0.55


class Odd(RunMetric):
    name = "odd"

    def value(self, run):
        return "many"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"admission": lambda state: 1},
            "admission: must answer True or False (got 1). Return a comparison.",
        ),
        (
            {"length": lambda rollout: 5000},
            "length: must give a whole number of tokens from 1 to 2048, the maximum of response_length "
            "(got 5000). Cut it there, or give the configuration a longer law.",
        ),
        ({"length": lambda rollout: 0.5}, "length: must give a whole number of tokens"),
        ({"metrics": [Odd()]}, "metrics.odd: must be a number (got 'many'). Return a float; NaN for none."),
        ({"admission": AlwaysOpen}, "admission: must be an instance of AdmissionRule, or a function"),
        ({"length": 300}, "length: must be an instance of LengthProcess, or a function (got 300)."),
        ({"metrics": LongestStep()}, "metrics: must be a list"),
        ({"metrics": [AlwaysOpen()]}, "metrics: must be instances of RunMetric"),
        ({"metrics": [LongestStep(), LongestStep()]}, "metrics: must have different names"),
    ],
)
def test_what_a_rule_must_not_be_or_answer_is_refused(options, message):
    with pytest.raises(ls.ConfigError) as refused:
        ls.simulate_custom(BASE, **options)

    assert message in str(refused.value)


def test_a_compiled_length_out_of_range_is_refused_too():
    @numba.njit
    def long(rollout):
        return 5000

    with pytest.raises(ls.ConfigError, match=r"length: must give a whole number of tokens.*5000"):
        ls.simulate_custom(BASE, length=long)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "metrics.name: must begin with a letter"),
        ({"name": "updates"}, "metrics.name: must not be a name that results have already"),
        ({"name": "status"}, "metrics.name: must not be a name that results have already"),
        ({"name": "x", "units": 3}, "metrics.x.units: must be a text"),
        ({"name": "x", "tables": ("events",)}, "metrics.x.tables: must be among batches, timeline, rollouts"),
    ],
)
def test_a_metric_needs_a_name_that_is_free_and_tables_that_there_are(changes, message):
    metric = type("Made", (RunMetric,), changes)()

    with pytest.raises(ls.ConfigError, match=message):
        Custom(metrics=[metric])


def test_the_base_classes_ask_for_their_method():
    with pytest.raises(NotImplementedError):
        ls.simulate_custom(BASE, AdmissionRule())
    with pytest.raises(NotImplementedError):
        ls.simulate_custom(BASE, length=LengthProcess())
