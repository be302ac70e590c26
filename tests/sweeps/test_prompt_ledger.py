"""The data cursor: absolute, only growing, past every settled prompt, and never an empty epoch."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.checkpoint.prompts import PromptLedger


def _resumed(ledger):
    return PromptLedger.from_state(json.loads(json.dumps(ledger.as_state())))


@given(
    samples=st.integers(1, 12),
    epochs=st.integers(1, 4),
    shuffle=st.one_of(st.none(), st.integers(0, 2**64)),
    stop=st.integers(0, 48),
)
def test_every_epoch_hands_out_every_prompt_once_wherever_the_run_was_stopped(samples, epochs, shuffle, stop):
    whole = PromptLedger(samples, epochs=epochs, shuffle_seed=shuffle)
    ledger = PromptLedger(samples, epochs=epochs, shuffle_seed=shuffle)
    numbers = []
    while not ledger.exhausted:
        if len(numbers) == stop:
            ledger = _resumed(ledger)
        number = ledger.issue()
        ledger.settle(number, "trained")
        numbers.append((number, ledger.prompt_id(number)))

    assert len(numbers) == samples * epochs
    assert [number for number, _ in numbers] == list(range(samples * epochs))
    assert numbers == [(number, whole.prompt_id(number)) for number in range(samples * epochs)]
    for epoch in range(epochs):
        chosen = numbers[epoch * samples : (epoch + 1) * samples]
        assert sorted(prompt for _, prompt in chosen) == list(range(samples))


def test_epochs_are_shuffled_differently():
    ledger = PromptLedger(64, shuffle_seed=1)
    orders = [[ledger.prompt_id(epoch * 64 + place) for place in range(64)] for epoch in range(3)]

    assert len({tuple(order) for order in orders}) == 3


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    ledger = PromptLedger(64, epochs=3)
    for _ in range(64):
        ledger.settle(ledger.issue(), "trained")
    resumed = _resumed(ledger)

    assert resumed.position == (1, 0)
    assert not resumed.exhausted
    assert resumed.issue() == 64


def test_dropped_prompts_do_not_hold_the_cursor_back():
    ledger = PromptLedger(8)
    for _ in range(5):
        ledger.issue()
    for number, outcome in {0: "trained", 1: "dropped", 2: "trained", 4: "trained"}.items():
        ledger.settle(number, outcome)
    resumed = _resumed(ledger)

    assert resumed.cursor == 3
    assert (resumed.trained_count, resumed.dropped_count) == (3, 1)
    assert resumed.outstanding() == [3]


@given(st.lists(st.integers(0, 2**16), max_size=60), st.data())
def test_the_cursor_is_the_first_unsettled_prompt_and_never_falls(choices, data):
    """Against sets that are searched afresh each time."""
    ledger, issued, settled, before = PromptLedger(7), set(), {}, 0
    for choice in choices:
        open_ones = sorted(issued - set(settled))
        if open_ones and choice % 3:
            number = open_ones[choice % len(open_ones)]
            settled[number] = "trained" if choice % 2 else "dropped"
            ledger.settle(number, settled[number])
        else:
            issued.add(ledger.issue())
        if choice % 5 == 0:
            ledger = _resumed(ledger)
        assert ledger.cursor == min(issued - set(settled), default=len(issued)) >= before
        assert ledger.outstanding() == sorted(issued - set(settled))
        before = ledger.cursor
    counts = Counter(settled.values())

    assert (ledger.trained_count, ledger.dropped_count) == (counts["trained"], counts["dropped"])


def test_prompts_whose_rollouts_are_gone_are_handed_out_first_and_counted_apart():
    ledger = PromptLedger(8, epochs=1)
    for _ in range(4):
        ledger.issue()
    ledger.settle(1, "trained")
    resumed = _resumed(ledger)
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
    ledger = PromptLedger(8)
    for _ in range(3):
        ledger.issue()
    ledger.settle(0, "trained")
    ledger.settle(1, "trained")
    ledger.settle(2, "dropped")

    with pytest.raises(CheckpointError) as caught:
        ledger.settle(number, "trained")
    assert str(caught.value) == (
        f"number: must be a prompt that was handed out and is not settled (got {number}). "
        "Its state and the cursor are not from one snapshot."
    )


def test_only_outstanding_prompts_are_done_again():
    ledger = PromptLedger(8)
    ledger.settle(ledger.issue(), "trained")
    ledger.issue()
    ledger.reissue([1])

    for number in (0, 1, 2):
        with pytest.raises(CheckpointError, match="number: must be outstanding"):
            ledger.reissue([number])


def test_an_exhausted_ledger_says_so():
    ledger = PromptLedger(1, epochs=1)
    ledger.issue()

    with pytest.raises(CheckpointError) as caught:
        ledger.issue()
    assert (
        str(caught.value) == "epochs: must hold enough prompts for the planned updates (got 1). Add epochs."
    )


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8"])
@pytest.mark.parametrize("name", ["samples", "epochs"])
def test_sizes_are_whole_and_at_least_one(name, value):
    with pytest.raises(ConfigError) as caught:
        PromptLedger(**{"samples": 4, name: value})

    assert str(caught.value) == f"{name}: must be a whole number of at least 1 (got {value!r}). Give a count."


def test_an_outcome_is_trained_or_dropped():
    ledger = PromptLedger(4)
    ledger.issue()

    with pytest.raises(ConfigError, match=r"outcome: must be one of trained, dropped \(got 'lost'\)"):
        ledger.settle(0, "lost")
