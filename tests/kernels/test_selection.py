"""Selection of the best by paired runs: its twin, and its guarantee on problems whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.selection_twin import kim_nelson

from lagsweep.errors import ConfigError
from lagsweep.kernels import select_best

REPETITIONS = 400
ENOUGH = 370  # a procedure that is right in exactly 95 % of cases falls below this in about 1 of 100


def _problem(kind: str, rng: np.random.Generator, means: np.ndarray, seeds: int) -> np.ndarray:
    """Draw values of every candidate whose true means are known; the spread is about 1."""
    shape = (len(means), seeds)
    if kind == "normal":
        noise = rng.normal(size=shape)
    elif kind == "correlated":  # what the seed gives to all is most of it
        noise = 3.0 * rng.normal(size=seeds) + rng.normal(size=shape)
    elif kind == "unequal":
        noise = rng.normal(size=shape) * np.linspace(0.5, 2.0, len(means))[:, None]
    else:  # skewed: exponential, its tail to the right
        noise = rng.exponential(size=shape) - 1.0
    return means[:, None] + noise


@pytest.mark.parametrize("kind", ["normal", "correlated", "unequal", "skewed"])
@pytest.mark.parametrize("others", [1, 9])
def test_the_best_is_chosen_as_often_as_stated_where_all_others_lie_one_indifference_below(kind, others):
    delta = 0.6
    means = np.full(others + 1, -delta)
    right = 0
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, others, len(kind)])
        best = int(rng.integers(others + 1))
        truth = means.copy()
        truth[best] = 0.0
        found = select_best(_problem(kind, rng, truth, 1500), delta, 0.95)
        assert found.decided
        right += found.best == best

    assert right >= ENOUGH


def test_of_many_within_the_indifference_the_chosen_is_one_of_those():
    delta, within = 0.5, 0
    truth = np.array([0.0, -0.1, -0.2, -0.4, -1.0, -2.0, -3.0])
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, 77])
        found = select_best(_problem("correlated", rng, truth, 2000), delta, 0.95)
        within += truth[found.best] >= -delta

    assert within >= ENOUGH


def test_the_procedure_cannot_be_right_by_chance_alone():
    """The same problems with far less confidence asked for are got wrong more often."""
    truth, early, sure = np.array([0.0, *[-0.6] * 9]), 0, 0
    for repetition in range(100):
        values = _problem("normal", np.random.default_rng([repetition, 5]), truth, 1500)
        early += select_best(values, 0.6, 0.2).best == 0
        sure += select_best(values, 0.6, 0.95).best == 0

    assert early < sure


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 6),
    seeds=st.integers(5, 120),
    first=st.integers(2, 12),
    delta=st.sampled_from([0.05, 0.4, 2.0]),
    confidence=st.sampled_from([0.6, 0.9, 0.99]),
)
def test_it_does_what_the_paper_says(seed, count, seeds, first, delta, confidence):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 1)) + rng.normal(size=(count, max(seeds, first))) + rng.normal(size=1)

    found = select_best(values, delta, confidence, first)
    best, decided, went = kim_nelson(values.tolist(), delta, 1 - confidence, first)

    assert (found.best, found.decided) == (best, decided)
    assert found.left_out_after.tolist() == [-1 if number is None else number for number in went]


def test_more_values_go_on_where_fewer_ended():
    rng = np.random.default_rng(3)
    values = np.array([[0.0], [0.3], [0.35]]) + rng.normal(size=(3, 3000))
    short = select_best(values[:, :60], 0.1)

    whole = select_best(values, 0.1)

    assert not short.decided
    assert whole.decided
    gone = short.left_out_after >= 0
    assert (whole.left_out_after[gone] == short.left_out_after[gone]).all()


def test_what_has_gone_needs_no_values():
    rng = np.random.default_rng(4)
    values = np.array([[0.0], [5.0], [4.9]]) + rng.normal(size=(3, 4000))
    whole = select_best(values, 0.05)
    went = int(whole.left_out_after[0])
    values[0, went:] = np.nan

    assert went >= 20
    assert select_best(values, 0.05).best == whole.best


def test_candidates_with_the_very_same_values_are_decided_at_once():
    row = np.random.default_rng(5).normal(size=40)

    found = select_best(np.stack([row, row, row - 1.0]), 0.01)

    assert found.decided
    assert found.left.tolist() == [0, 1]
    assert found.best == 0
    assert found.looked_at == 20


def test_values_that_differ_little_lose_nothing_beside_their_size():
    rng = np.random.default_rng(6)
    values = np.array([[0.0], [1e-3]]) + rng.normal(size=(2, 400)) * 1e-4

    found, far = select_best(values, 1e-4), select_best(values + 1e6, 1e-4)

    assert (found.best, found.looked_at) == (far.best, far.looked_at) == (1, 20)


def test_one_candidate_is_the_best_and_too_few_values_decide_nothing():
    assert select_best([[1.0, 2.0]], 0.1).decided
    few = select_best([[1.0, 2.0], [3.0, 4.0]], 0.1)
    assert (few.best, few.decided, few.looked_at) == (1, False, 2)
    none = select_best(np.empty((2, 0)), 0.1)
    assert (none.best, none.decided) == (0, False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indifference": 0.0}, "indifference"),
        ({"confidence": 0.5}, "confidence"),
        ({"confidence": 1.0}, "confidence"),
        ({"first_values": 1}, "first_values"),
        ({"values": [1.0, 2.0]}, "candidates × seeds"),
        ({"values": [[np.inf] * 30, [1.0] * 30]}, "finite"),
        ({"values": [[1.0] * 30, [1.0] * 10 + [np.nan] * 20]}, "values\\[1, 10\\]"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes, words):
    given = {"values": np.zeros((2, 30)), "indifference": 0.1} | changes

    with pytest.raises(ConfigError, match=words):
        select_best(**given)
