"""Every public function answers odd values with a result or with an error of ours.

The functions are listed, not named here: one that has no valid call in ``strategies/public_calls.py`` fails.
"""

from __future__ import annotations

import inspect
import random
from pathlib import Path

import pytest
from strategies.odd_calls import odd_call
from strategies.public_calls import odd_values, public_callables, valid_calls

# What takes a second and more a call: a few odd values in each place, all of them in the long run.
SLOW = ("write_report", "verify_store", "compare_systems", "recovery_drill", "VerifyReport", "Frontier")
SLOW += ("run_spec", "run_sweep", "SweepSpec.run", "plot_", "write_trace", "recommend", "comparison_rows")
SLOW += ("search", "sensitivity")
SLOW += ("fit_engine", "plan", "Plan.sweep", "write_plan_page", "calibrate", "what_if", "Calibration.sweep")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_public_function_has_a_valid_call():
    assert sorted(valid_calls()) == sorted(public_callables())


def test_every_parameter_has_a_valid_value_that_an_odd_one_replaces():
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    left_out = {}
    for name, function in public_callables().items():
        parameters = inspect.signature(function).parameters.values()
        wanted = {each.name for each in parameters if each.kind in named and each.name != "self"}
        call = valid_calls()[name]
        if not call.positional and not wanted <= set(call.keywords):
            left_out[name] = wanted - set(call.keywords)

    assert left_out == {}


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_odd_values_end_in_an_answer_or_in_an_error_of_ours(name):
    function, call = public_callables()[name], valid_calls()[name]
    call.make(function)  # it is valid; and what is compiled or simulated once is no part of a call's time

    stream = random.Random(name)
    values = odd_values()
    few = 3 if name.startswith(SLOW) else 40
    tried = [(place, value) for place in call.places() for value in stream.sample(values, few)]
    outcomes = [odd_call(name, function, call, {place: value}) for place, value in tried]

    assert [outcome for outcome in outcomes if outcome.is_fault] == []


def test_a_slice_of_the_long_run_finds_no_fault():
    import runpy

    fuzz = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "fuzz_calls.py"))["fuzz"]

    assert [outcome for outcome in fuzz(1000, seed=1) if outcome.is_fault] == []
