"""The recovery drill: crash a small training loop, resume it rightly and in six wrong ways, and compare.

None of the wrong ways fails, and the reward looks alike in all of them; that is why they live long in real
systems. The drill compares everything that the uninterrupted run holds at the end (weights, optimizer,
versions, both streams, data cursor, queue, rollouts in flight, admission counter) and each update's record,
and says what a wrong resume silently changes: which prompts are never trained or trained twice, which stream
differs, how far the outstanding work goes over its limit.

The first five faults have been met as reports on real trainers; the sixth, an admission counter that restarts
at zero beside a restored version, is areal-project/AReaL#1388.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError, many
from .checkpoint import Manifest, load_checkpoint, save_checkpoint
from .codec import decode
from .drill_loop import DrillSettings, TrainingLoop, UpdateRecord, weights_digest
from .generators import encode_generator
from .manifest import whole_number

MOST_UPDATES = 10_000  # a drill trains them all, three times and more


@dataclass(frozen=True)
class DrillOutcome:
    """Where a run stands at the end of the drill.

    Attributes
    ----------
    updates : int
        The optimizer's step; 0 at the crash for a run that forgot it.
    version, published_version : int
        The trainer's version and that of new rollouts.
    cursor : int
        Absolute number of the first unsettled prompt.
    trained, dropped : int
        Prompts settled since the crash.
    mean_reward : float
        Over the updates since the crash.
    weights : str
        Digest of the weights.
    next_draws : tuple of int
        What NumPy's generator would draw next, below 10,000.
    """

    updates: int
    version: int
    published_version: int
    cursor: int
    trained: int
    dropped: int
    mean_reward: float
    weights: str
    next_draws: tuple[int, ...]
    aspects: dict[str, Any] = field(repr=False)
    records: tuple[UpdateRecord, ...] = field(repr=False)


@dataclass(frozen=True)
class ResumeReport:
    """A resume compared with the uninterrupted run.

    Attributes
    ----------
    name, fault : str
        Which resume, and what it leaves out or does wrong.
    caught : bool
        Whether anything differs from the uninterrupted run.
    caught_by : tuple of str
        What differs: names of parts of the state, and ``updates`` for the records.
    effects : tuple of str
        What it silently changes, as sentences with numbers.
    first_different_update : int or None
        The first update after the crash whose record differs.
    vanished_prompts, repeated_prompts : tuple of int
        Handed out but neither settled nor waiting; and trained more than once, over both halves.
    stream : str
        Where NumPy's generator stands at the resume: ``same`` as saved, ``replayed`` (at the run's start) or
        ``other``.
    largest_outstanding : int
        Most rollouts queued and in flight at once since the crash.
    weight_distance : float
        Largest absolute difference of a weight at the end.
    outcome : DrillOutcome
        Where it ended.
    """

    name: str
    fault: str
    caught: bool
    caught_by: tuple[str, ...]
    effects: tuple[str, ...]
    first_different_update: int | None
    vanished_prompts: tuple[int, ...]
    repeated_prompts: tuple[int, ...]
    stream: str
    largest_outstanding: int
    weight_distance: float
    outcome: DrillOutcome = field(repr=False)


@dataclass(frozen=True)
class RecoveryDrill:
    """The drill's result: the course's five names first, then every broken resume.

    Attributes
    ----------
    uninterrupted, resumed, broken_resume : DrillOutcome
        The run without a crash, the right resume, and the one from weights alone.
    exact_match, broken_match : bool
        Whether the right resume, and the one from weights alone, equal the uninterrupted run in everything.
    right : ResumeReport
        The right resume, compared like the others.
    broken : tuple of ResumeReport
        Weights only, no generators, cursor ahead, buffer lost, reseeded after the restore, counter lost.
    """

    uninterrupted: DrillOutcome
    resumed: DrillOutcome
    broken_resume: DrillOutcome
    exact_match: bool
    broken_match: bool
    right: ResumeReport = field(repr=False)
    broken: tuple[ResumeReport, ...] = field(repr=False)

    @property
    def all_caught(self) -> bool:
        """Whether the right resume is exact and every broken one is noticed."""
        return self.exact_match and all(report.caught for report in self.broken)


def recovery_drill(
    seed: int, before: int, after: int, *, settings: DrillSettings | None = None
) -> RecoveryDrill:
    """Train, checkpoint, crash, and resume rightly and wrongly.

    Parameters
    ----------
    seed : int
        Of the task, the order of prompts and both generators.
    before : int
        Updates before the crash, at least 1.
    after : int
        Updates after it, at least 1.
    settings : DrillSettings, optional
        Sizes of the loop.

    Returns
    -------
    RecoveryDrill
        Compare ``exact_match`` (must be true) and ``all_caught``.

    Examples
    --------
    >>> drill = recovery_drill(seed=12016, before=8, after=8)
    >>> drill.exact_match, drill.broken_match, drill.all_caught
    (True, False, True)
    >>> drill.resumed == drill.uninterrupted
    True
    """
    seed = whole_number("seed", seed, bits=64)
    for name, value in (("before", before), ("after", after)):
        if whole_number(name, value) > MOST_UPDATES:
            raise ConfigError(name, f"must be at most {MOST_UPDATES}", value, "Crash after fewer updates.")
        if whole_number(name, value) < 1:
            raise ConfigError(name, "must be at least 1 update", value, "Crash after some training.")
    if settings is None:
        settings = DrillSettings()
    instance("settings", settings, DrillSettings, "Leave it out, or give DrillSettings().")
    whole = TrainingLoop(seed, settings).run(before + after)
    past = tuple(whole.records[:before])
    uninterrupted = _outcome(whole, tuple(whole.records[before:]))
    manifest = _checkpoint_through_a_file(TrainingLoop(seed, settings).run(before))

    def resume(name: str, fault: str, damage: _Damage) -> ResumeReport:
        loop = damage(TrainingLoop.from_checkpoint(manifest, seed, settings), manifest)
        stream = _stream(loop, manifest)
        loop.run(after)
        return _compare(name, fault, stream, loop, past, uninterrupted)

    right = resume("right", "everything is restored", lambda loop, manifest: loop)
    broken = tuple(resume(name, fault, damage) for name, fault, damage in _FAULTS)
    return RecoveryDrill(
        uninterrupted=uninterrupted,
        resumed=right.outcome,
        broken_resume=broken[0].outcome,
        exact_match=not right.caught,
        broken_match=not broken[0].caught,
        right=right,
        broken=broken,
    )


_Damage = Callable[[TrainingLoop, Manifest], TrainingLoop]


def _checkpoint_through_a_file(loop: TrainingLoop) -> Manifest:
    """Save and load with the package's own format: a drill that skips the file proves little."""
    with tempfile.TemporaryDirectory(prefix="lagsweep-drill-") as folder:
        path = save_checkpoint(loop.checkpoint(), Path(folder) / f"step-{loop.optimizer_step:06d}.json")
        return load_checkpoint(path, components=loop.components())


def _weights_only(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    fresh = TrainingLoop(loop.seed, loop.settings)
    fresh.weights = loop.weights
    fresh.published_weights = loop.weights.copy()
    return fresh


def _no_generators(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    loop.rng = np.random.default_rng(loop.seed)
    loop.python_random = random.Random(loop.seed)
    return loop


def _cursor_ahead(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    # The data loader had read ahead, and its own position was saved instead of the last prompt handed out.
    loop.prompts.next_number += loop.settings.prefetch_prompts
    return loop


def _buffer_lost(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    loop.accepted -= len(loop.queue)
    loop.queue, loop.in_flight = [], []
    return loop


def _reseeded(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    # The restore was right, but a set-up routine that runs after it seeds everything once more.
    loop.rng = np.random.default_rng([loop.seed, loop.optimizer_step])
    loop.python_random = random.Random(loop.seed + loop.optimizer_step)
    return loop


def _counter_lost(loop: TrainingLoop, manifest: Manifest) -> TrainingLoop:
    loop.accepted = 0
    return loop


_FAULTS: tuple[tuple[str, str, _Damage], ...] = (
    ("weights only", "only the weights are restored", _weights_only),
    ("no generators", "generators start again from the run's seed", _no_generators),
    ("cursor ahead", "the loader's read-ahead position is taken for the cursor", _cursor_ahead),
    ("buffer lost", "queued and running rollouts are not saved", _buffer_lost),
    ("reseeded", "generators are restored, then seeded again", _reseeded),
    ("counter lost", "the admission counter restarts at 0 beside a restored version", _counter_lost),
)


def _outcome(loop: TrainingLoop, records: tuple[UpdateRecord, ...]) -> DrillOutcome:
    aspects = loop.aspects()
    # Last, since it advances the generator.
    next_draws = tuple(int(draw) for draw in loop.rng.integers(0, 10_000, size=4))
    return DrillOutcome(
        updates=loop.optimizer_step,
        version=loop.current_version,
        published_version=loop.published_version,
        cursor=loop.prompts.cursor,
        trained=sum(len(record.trained) for record in records),
        dropped=sum(len(record.dropped) for record in records),
        mean_reward=round(float(np.mean([record.mean_reward for record in records])), 4),
        weights=weights_digest(loop.weights),
        next_draws=next_draws,
        aspects=aspects,
        records=records,
    )


def _compare(
    name: str,
    fault: str,
    stream: str,
    loop: TrainingLoop,
    past: tuple[UpdateRecord, ...],
    expected: DrillOutcome,
) -> ResumeReport:
    """Compare a resumed run with the uninterrupted one in everything, and count what went missing."""
    waiting = {rollout["number"] for rollout in [*loop.queue, *loop.in_flight]}
    outcome = _outcome(loop, tuple(loop.records))
    differing = [part for part, value in expected.aspects.items() if outcome.aspects[part] != value]
    pairs = zip(outcome.records, expected.records, strict=True)
    different = [place for place, (own, other) in enumerate(pairs) if own != other]
    trained = Counter(number for record in [*past, *outcome.records] for number in record.trained)
    settled = {number for record in [*past, *outcome.records] for number in record.dropped} | set(trained)
    vanished = tuple(n for n in range(loop.prompts.next_number) if n not in settled and n not in waiting)
    repeated = tuple(sorted(number for number, times in trained.items() if times > 1))
    facts: dict[str, Any] = {
        "first_different_update": len(past) + different[0] + 1 if different else None,
        "vanished_prompts": vanished,
        "repeated_prompts": repeated,
        "stream": stream,
        "largest_outstanding": max(record.largest_outstanding for record in outcome.records),
        "weight_distance": _weight_distance(outcome, expected),
    }
    return ResumeReport(
        name=name,
        fault=fault,
        caught=bool(differing or different),
        caught_by=(*differing, *(["updates"] if different else [])),
        effects=_effects(facts, differing, outcome, expected, loop.settings),
        outcome=outcome,
        **facts,
    )


def _stream(loop: TrainingLoop, manifest: Manifest) -> str:
    """Say where NumPy's generator stands at the resume: as saved, at the run's start, or elsewhere."""
    state = encode_generator(loop.rng)
    if state == manifest.payload["rng_state"]["numpy"]:
        return "same"
    return "replayed" if state == encode_generator(np.random.default_rng(loop.seed)) else "other"


def _weight_distance(outcome: DrillOutcome, expected: DrillOutcome) -> float:
    return float(np.abs(decode(outcome.aspects["weights"]) - decode(expected.aspects["weights"])).max())


def _effects(
    facts: dict[str, Any],
    differing: list[str],
    outcome: DrillOutcome,
    expected: DrillOutcome,
    settings: DrillSettings,
) -> tuple[str, ...]:
    """Say in sentences what the resume changed without any error."""
    effects = []
    vanished, repeated = facts["vanished_prompts"], facts["repeated_prompts"]
    largest, limit = facts["largest_outstanding"], settings.outstanding_limit
    if outcome.updates != expected.updates:
        steps = f"step {outcome.updates} instead of {expected.updates}"
        effects.append(f"optimizer moments and versions start at 0: {steps}")
    if vanished:
        effects.append(f"{_count(vanished)} never trained: {_runs(vanished)}")
    if repeated:
        effects.append(f"{_count(repeated)} trained twice: {_runs(repeated)}")
    if facts["stream"] == "replayed":
        effects.append("the run's first draws are drawn again")
    if facts["stream"] == "other":
        effects.append("every draw after the resume comes from another stream")
    if largest > limit:
        effects.append(f"{many(largest, 'rollout')} outstanding where {limit} is the limit")
    if outcome.dropped > expected.dropped:
        effects.append(f"{many(outcome.dropped, 'rollout')} dropped as stale instead of {expected.dropped}")
    if facts["first_different_update"] is not None:
        effects.append(f"update {facts['first_different_update']} is the first that differs")
    elif differing:
        effects.append(f"different at the end: {', '.join(differing)}")
    return tuple(effects)


def _count(numbers: tuple[int, ...]) -> str:
    return "1 prompt" if len(numbers) == 1 else f"{len(numbers)} prompts"


def _runs(numbers: tuple[int, ...], most: int = 4) -> str:
    """Write sorted numbers as runs: 3-7, 9, 12-14."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ", ".join([*shown, *(["…"] if len(runs) > most else [])])
