"""Slow, obvious twins of the overlap formulas: a schedule by waiting, and groups by enumeration."""

from __future__ import annotations

from itertools import product


def makespan_by_ticks(rollout: list[int], train: list[int], buffer: int) -> tuple[list[int], list[int]]:
    """Step through whole seconds; say when each batch left each stage. Durations are at least 1."""
    n = len(rollout)
    rollout_end: list[int] = []
    train_end: list[int] = []
    waiting = 0  # finished batches that are neither in training nor in the producer's hands
    producing = training = None  # seconds left
    in_hand = False
    started = now = 0
    while len(train_end) < n:
        moved = True
        while moved:
            moved = False
            if producing == 0:
                producing, in_hand, moved = None, True, True
                rollout_end.append(now)
            if training == 0:
                training, moved = None, True
                train_end.append(now)
            if training is None and (waiting or in_hand):
                moved = True
                training = train[len(train_end)]
                if waiting:
                    waiting -= 1
                else:
                    in_hand = False
            if in_hand and waiting < buffer:
                waiting, in_hand, moved = waiting + 1, False, True
            if producing is None and not in_hand and started < n:
                producing, started, moved = rollout[started], started + 1, True
        now += 1
        producing = None if producing is None else producing - 1
        training = None if training is None else training - 1
    return rollout_end, train_end


def group_by_enumeration(lengths: list[float], weights: list[float], workers: int) -> tuple[float, float]:
    """Return (E[max], E[mean / max]) by going through every possible group."""
    longest = share = 0.0
    for members in product(range(len(lengths)), repeat=workers):
        probability = 1.0
        for member in members:
            probability *= weights[member]
        group = [lengths[member] for member in members]
        longest += probability * max(group)
        share += probability * sum(group) / workers / max(group)
    return longest, share
