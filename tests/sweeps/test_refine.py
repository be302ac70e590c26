"""More values where the frontier bends: which ones, how many, once, and in the same store."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.errors import ConfigError
from lagsweep.sweeps.sweep.refine import proposals

BASE = ls.PipelineConfig(duration_seconds=600, train_tokens_per_second=400)
CALL = ["run", "--axis", "max_lag=0,2,8", "--axis", "sync_cadence=1,4", "--seeds", "8", "-q"]
CALL += ["--duration-seconds", "600", "--train-tokens-per-second", "400"]


def _axes(folder):
    return {
        name: sorted(values.values.tolist())
        for name, values in ls.open_sweep(folder).coords.items()
        if name in ("max_lag", "sync_cadence")
    }


def test_values_lie_between_neighbours_on_the_frontier_and_the_sharpest_bend_comes_first():
    ds = ls.run_sweep(BASE, {"max_lag": [0, 2, 8], "sync_cadence": [1, 4]}, seeds=8)
    found = proposals(ds)
    frame = ls.frontier(ds).frame
    on = frame.filter(frame["on_frontier"])
    pairs = list(zip(on["max_lag"], on["max_lag"][1:]))

    assert found
    for one in found:
        low, high = one.between
        assert low < one.value < high
        if one.axis == "max_lag":
            assert (high, low) in pairs or (low, high) in pairs
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)
    assert all(one.weight > 0 for one in found)


def test_a_straight_frontier_is_refined_by_length_and_a_bent_one_at_its_bend():
    from lagsweep.sweeps.sweep.refine import _bends

    straight = _bends(np.array([3.0, 2.9, 0.0]), np.array([0.0, 0.1, 3.0]))
    bent = _bends(np.array([4.0, 3.9, 3.8, 0.0]), np.array([0.0, 0.1, 3.9, 4.0]))

    assert max(straight, key=lambda piece: piece[1])[0] == 1
    assert max(bent, key=lambda piece: piece[1])[0] in (1, 2)
    assert _bends(np.array([1.0]), np.array([1.0])) == []


def test_the_command_adds_so_many_values_and_nothing_more_when_given_again(tmp_path):
    folder = tmp_path / "s"
    once = run([*CALL, "--store", str(folder), "--refine", "1"])
    one = _axes(folder)
    again = run([*CALL, "--store", str(folder), "--refine", "1"])
    two = _axes(folder)
    more = run([*CALL, "--store", str(folder), "--refine", "2"])

    assert once.code == again.code == more.code == 0
    assert sum(map(len, one.values())) == 3 + 2 + 1
    assert two == one
    assert sum(map(len, _axes(folder).values())) >= sum(map(len, one.values()))
    assert run(["verify", str(folder), "--sample", "3"]).code == 0
    assert again.out == once.out


def test_what_is_refined_equals_a_sweep_that_had_the_values_from_the_start(tmp_path):
    folder = tmp_path / "s"
    run([*CALL, "--store", str(folder), "--refine", "2"])
    found = ls.open_sweep(folder).sortby(["max_lag", "sync_cadence"])
    fresh = ls.run_sweep(BASE, _axes(folder), seeds=8).sortby(["max_lag", "sync_cadence"])

    np.testing.assert_array_equal(found["trained_tokens"].values, fresh["trained_tokens"].values)
    np.testing.assert_array_equal(found["cell"].values, fresh["cell"].values)


def test_nothing_between_is_said_and_ends(tmp_path):
    call = ["run", "--axis", "max_lag=0,1,2", "--seeds", "3", "--duration-seconds", "300"]
    answer = run([*call, "--store", str(tmp_path / "s"), "--refine", "5"])

    assert answer.code == 0
    assert b"refine: no value" in answer.err


def test_points_are_refused():
    ds = ls.run_sweep(BASE, [{"max_lag": [1, 2], "sync_cadence": [1, 2]}], seeds=2)

    with pytest.raises(ConfigError, match="needs a grid"):
        proposals(ds)
