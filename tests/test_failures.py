"""Failures: the general loop and the twin agree, what is lost adds up, and stopping anywhere changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
from oracle.level4 import run_level4
from strategies.failing_configs import failing_settings, to_config, to_twin

from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, metrics_of_options
from lagsweep.sweeps.runs.general import simulate_general


def check(drawn):
    """Run both; return the twin's run and the result."""
    config, twin = to_config(drawn), run_level4(to_twin(drawn))
    told = (*GENERAL_METRICS, *metrics_of_options(config.options_in_use))
    result = simulate_general(config, rollouts=True)
    assert_same_run(result, twin, tuple(metric.name for metric in told))
    return twin, result


@settings(max_examples=400)
@given(failing_settings())
def test_random_failures_agree(drawn):
    check(drawn)


@settings(max_examples=200)
@given(failing_settings(engines=True))
def test_random_failures_with_engines_agree(drawn):
    check(drawn)
