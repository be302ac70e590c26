"""Our two loops and a lean SimPy script on one model: nanoseconds an event, by the number of slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.kernels.draws.philox import normals, philox_words, uniforms
from lagsweep.sweeps.runs.general import GeneralRun, new_draws
from lagsweep.sweeps.runs.lean import LeanCells, LeanRun

SLOTS = (8, 64, 256, 1_024, 4_096, 16_384)
AGREES_WITHIN = 0.02  # SimPy lands rollouts of one moment in another order
SAME = ("updates", "trained_tokens", "discarded_tokens", "syncs", "max_lag_observed")


def keeping_up(slots: int, events: float, law: LengthLaw | None = None) -> PipelineConfig:
    """Return a pipeline whose trainer keeps up with its slots, long enough for about so many events."""
    law = law or LengthLaw.lognormal()
    seconds_per_rollout = 0.5 + law.mean_tokens / 50
    rollouts_per_batch = max(8, slots // 2)
    return PipelineConfig(
        rollout_workers=slots,
        response_length=law,
        batch_tokens=int(law.mean_tokens * rollouts_per_batch),
        max_queue_tokens=int(law.mean_tokens * rollouts_per_batch * 3),
        train_tokens_per_second=1.05 * law.mean_tokens * slots / seconds_per_rollout,
        train_overhead_seconds=0.0,
        max_policy_lag=4,
        duration_seconds=events / slots * seconds_per_rollout,
    )


def lean_cells(configs: Sequence[PipelineConfig]) -> LeanCells:
    """Return configurations of one seed as a sweep runs them by the lean loop."""
    return LeanCells(configs)


def run_cells(cells: LeanCells, seed: int = 0) -> np.ndarray:
    """Run all configurations at a seed; gives their metrics."""
    if hasattr(cells, "lag_bins"):
        count = cells.count
        metrics = np.zeros(count, cells.REPORT)
        cells.begin(np.array([seed], np.uint64), metrics, np.zeros((count, cells.lag_bins), np.int64))
    else:  # the package of an older commit, which a profile is held against, takes one seed at a time
        count = len(cells.lag_counts)
        metrics = np.zeros(count, cells.REPORT)
        cells.begin(seed, metrics)
    while cells.finished < count:
        cells.step()
    return metrics


def general_run(config: PipelineConfig, rollouts: int = 0) -> GeneralRun:
    """Return a run of the general loop; its draws are kept for so many rollouts, as a sweep does."""
    return GeneralRun(config, draws=new_draws(rollouts)) if rollouts else GeneralRun(config)


def lean_run(config: PipelineConfig, rollouts: int) -> LeanRun:
    """Return a run of the lean loop that keeps its draws for so many rollouts."""
    return LeanRun(config, draw_rollouts=rollouts)


def anew(run: LeanRun | GeneralRun, drawing: bool = False) -> None:
    """Run from the beginning to the end, the rollouts drawn before or to be drawn again."""
    if drawing:
        run.draws.drawn[:] = 0
    run.begin(run.config.seed)
    while not run.step():
        pass


def run_general(run: GeneralRun) -> GeneralRun:
    """Run from the beginning to the end, with the draws that it has."""
    anew(run)
    return run


def lean_events(config: PipelineConfig) -> int:
    """Count the events of a run of the lean loop."""
    run = LeanRun(config)
    run.advance()
    return int(run.state.events)


def drawn_rollouts(law: LengthLaw, count: int) -> tuple[list[int], list[float]]:
    """Return lengths in tokens and normals of the first rollouts of seed 0."""
    words = philox_words(0, 0, count)
    lengths = law.minimum + np.searchsorted(law.cdf, uniforms(words)[:, 0], side="right")
    return lengths.tolist(), normals(words)[:, 1].tolist()


def _row(slots: int, rounds: int, events: int) -> tuple[list[str], bool]:
    """Measure one number of slots; gives the row, and whether SimPy agrees."""
    config = keeping_up(slots, max(events, 4 * slots))
    short = config.replace(duration_seconds=keeping_up(slots, max(events // 8, 2 * slots)).duration_seconds)
    cells, general = lean_cells([config]), general_run(config, 2 * max(events, 4 * slots))
    ours = run_cells(cells)
    summary = run_general(general).summary()
    for name in SAME:
        if ours[name][0] != summary[name]:
            raise SystemExit(f"the lean and the general loop differ in {name} at {slots} slots")
    happened = {"lean": int(cells.events), "general": int(general.state.events)}
    forms = {"lean": lambda: run_cells(cells), "general": lambda: run_general(general)}
    agrees = True
    try:
        from simpy_pipeline import run as run_simpy
    except ImportError:
        pass
    else:
        lengths, noise = drawn_rollouts(config.response_length, 2 * max(events // 8, 2 * slots) + slots)
        happened["SimPy"], counts, _ = run_simpy(short, lengths, noise)
        trained = int(run_cells(lean_cells([short]))["trained_tokens"][0])
        agrees = abs(counts["trained_tokens"] - trained) <= AGREES_WITHIN * trained
        forms["SimPy"] = lambda: run_simpy(short, lengths, noise)
    seconds = in_turn(forms, rounds)
    each = {name: scaled(samples, 1e9 / happened[name]) for name, samples in seconds.items()}
    lone = ["not installed"] * 2
    if "SimPy" in each:
        lone = [ranged(each["SimPy"], 0), ranged(ratios(each, "SimPy", "lean"), 0)]
    cells_of_row = [ranged(each["lean"]), ranged(each["general"]), ranged(ratios(each, "general", "lean"), 2)]
    return [f"{slots:,}", *cells_of_row, *lone], agrees


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure all numbers of slots."""
    events = 4_000 if tiny else 200_000
    measured = [_row(slots, rounds, events) for slots in (SLOTS[:2] if tiny else SLOTS)]
    head = ["slots", "lean loop, ns an event", "general loop, options off", "general / lean", "SimPy"]
    found = Section("The loops by the number of slots")
    found.text += [
        f"One run of about {events:,} events (SimPy: an eighth) on rollouts drawn beforehand, the trainer "
        "keeping up. The general loop must give the lean loop's integers, and SimPy, which lands "
        f"rollouts of one moment in another order, the trained tokens within {AGREES_WITHIN:.0%}.",
        table([*head, "SimPy / lean"], [row for row, _ in measured]),
    ]
    found.agrees("SimPy trains as many tokens", all(agrees for _, agrees in measured))
    return found
