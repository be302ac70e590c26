"""The data cursor: absolute, only growing, past every settled prompt, and never an empty epoch."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.checkpoint.prompts import PromptCursor


def _resumed(prompts):
    return PromptCursor.from_state(json.loads(json.dumps(prompts.as_state())))


@given(
    samples=st.integers(1, 12),
    epochs=st.integers(1, 4),
    shuffle=st.one_of(st.none(), st.integers(0, 2**64)),
    stop=st.integers(0, 48),
)
def test_every_epoch_hands_out_every_prompt_once_wherever_the_run_was_stopped(samples, epochs, shuffle, stop):
    whole = PromptCursor(samples, epochs=epochs, shuffle_seed=shuffle)
    prompts = PromptCursor(samples, epochs=epochs, shuffle_seed=shuffle)
    numbers = []
    while not prompts.exhausted:
        if len(numbers) == stop:
            prompts = _resumed(prompts)
        number = prompts.issue()
        prompts.settle(number, "trained")
        numbers.append((number, prompts.prompt_id(number)))

    assert len(numbers) == samples * epochs
    assert [number for number, _ in numbers] == list(range(samples * epochs))
    assert numbers == [(number, whole.prompt_id(number)) for number in range(samples * epochs)]
    for epoch in range(epochs):
        chosen = numbers[epoch * samples : (epoch + 1) * samples]
        assert sorted(prompt for _, prompt in chosen) == list(range(samples))


def test_epochs_are_shuffled_differently():
    prompts = PromptCursor(64, shuffle_seed=1)
    orders = [[prompts.prompt_id(epoch * 64 + place) for place in range(64)] for epoch in range(3)]

    assert len({tuple(order) for order in orders}) == 3


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    prompts = PromptCursor(64, epochs=3)
    for _ in range(64):
        prompts.settle(prompts.issue(), "trained")
    resumed = _resumed(prompts)

    assert resumed.position == (1, 0)
    assert not resumed.exhausted
    assert resumed.issue() == 64


def test_dropped_prompts_do_not_hold_the_cursor_back():
    prompts = PromptCursor(8)
    for _ in range(5):
        prompts.issue()
    for number, outcome in {0: "trained", 1: "dropped", 2: "trained", 4: "trained"}.items():
        prompts.settle(number, outcome)
    resumed = _resumed(prompts)

    assert resumed.cursor == 3
    assert (resumed.trained_count, resumed.dropped_count) == (3, 1)
    assert resumed.outstanding() == [3]


@given(st.lists(st.integers(0, 2**16), max_size=60), st.data())
def test_the_cursor_is_the_first_unsettled_prompt_and_never_falls(choices, data):
    """Against sets that are searched afresh each time."""
    prompts, issued, settled, before = PromptCursor(7), set(), {}, 0
    for choice in choices:
        open_ones = sorted(issued - set(settled))
        if open_ones and choice % 3:
            number = open_ones[choice % len(open_ones)]
            settled[number] = "trained" if choice % 2 else "dropped"
            prompts.settle(number, settled[number])
        else:
            issued.add(prompts.issue())
        if choice % 5 == 0:
            prompts = _resumed(prompts)
        assert prompts.cursor == min(issued - set(settled), default=len(issued)) >= before
        assert prompts.outstanding() == sorted(issued - set(settled))
        before = prompts.cursor
    counts = Counter(settled.values())

    assert (prompts.trained_count, prompts.dropped_count) == (counts["trained"], counts["dropped"])


def test_prompts_whose_rollouts_are_gone_are_handed_out_first_and_counted_apart():
    prompts = PromptCursor(8, epochs=1)
    for _ in range(4):
        prompts.issue()
    prompts.settle(1, "trained")
    resumed = _resumed(prompts)
    resumed.reissue(resumed.outstanding())
    again = _resumed(resumed)
    order = []
    while not again.exhausted:
        number = again.issue()
        again.settle(number, "trained")
        order.append(number)

    assert order == [0, 2, 3, 4, 5, 6, 7]
    assert again.trained_count == 8
    assert again.reissued_count == 3
    assert again.cursor == 8


@pytest.mark.parametrize("number", [1, 2, 3, -1])
def test_no_prompt_is_settled_twice_or_before_it_is_handed_out(number):
    prompts = PromptCursor(8)
    for _ in range(3):
        prompts.issue()
    prompts.settle(0, "trained")
    prompts.settle(1, "trained")
    prompts.settle(2, "dropped")

    with pytest.raises(CheckpointError) as caught:
        prompts.settle(number, "trained")
    assert str(caught.value) == (
        f"number: must be a prompt that was handed out and is not settled (got {number}). "
        "Its state and the cursor are not from one snapshot."
    )


def test_only_outstanding_prompts_are_done_again():
    prompts = PromptCursor(8)
    prompts.settle(prompts.issue(), "trained")
    prompts.issue()
    prompts.reissue([1])

    for number in (0, 1, 2):
        with pytest.raises(CheckpointError, match="number: must be outstanding"):
            prompts.reissue([number])


def test_an_exhausted_ledger_says_so():
    prompts = PromptCursor(1, epochs=1)
    prompts.issue()

    with pytest.raises(CheckpointError) as caught:
        prompts.issue()
    assert (
        str(caught.value) == "epochs: must hold enough prompts for the planned updates (got 1). Add epochs."
    )


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8"])
@pytest.mark.parametrize("name", ["samples", "epochs"])
def test_sizes_are_whole_and_at_least_one(name, value):
    with pytest.raises(ConfigError) as caught:
        PromptCursor(**{"samples": 4, name: value})

    assert str(caught.value) == f"{name}: must be a whole number of at least 1 (got {value!r}). Give a count."


def test_an_outcome_is_trained_or_dropped():
    prompts = PromptCursor(4)
    prompts.issue()

    with pytest.raises(ConfigError, match=r"outcome: must be one of trained, dropped \(got 'lost'\)"):
        prompts.settle(0, "lost")
