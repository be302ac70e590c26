"""How the time of an event goes with what a run is: queue, lag limit, length of the run, configurations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

from loops import general_run, keeping_up, lean_cells, run_cells, run_general
from measuring import Section, growth, in_turn, ranged, scaled, table

from lagsweep import LengthLaw, PipelineConfig

SLOTS = 64
_LAW = LengthLaw.lognormal()
# The rules whose cost might depend on what waits: which groups are taken, and which are too old.
FORMS = {
    "lean": {},
    "general": {},
    "freshest first": {"queue_order": "freshest"},
    "lag tested at the pop": {"stale_check": "dequeue"},
}


def _queueing(rollouts: int, events: int) -> PipelineConfig:
    """Return a run whose trainer is the slower side, so that so many rollouts wait all the time."""
    config = keeping_up(SLOTS, events, _LAW)
    return config.replace(
        max_queue_tokens=int(rollouts * _LAW.mean_tokens),
        batch_tokens=int(8 * _LAW.mean_tokens),
        train_tokens_per_second=0.8 * config.train_tokens_per_second,
        max_policy_lag=10**6,
        duration_seconds=config.duration_seconds * (1 + rollouts / events),
    )


def _timed(config: PipelineConfig, form: str, least: int) -> tuple[Callable[[], object], int]:
    """Return what runs a configuration in a form, again until there are so many events, and their number."""
    if form == "lean":
        cells = lean_cells([config])
        run_cells(cells)
        events, once = int(cells.events), lambda: run_cells(cells)
    else:
        run = run_general(general_run(config.replace(**FORMS[form]), 1 << 17))
        events, once = int(run.state.events), lambda: run_general(run)
    times = max(1, least // events)

    def repeated() -> None:
        for _ in range(times):
            once()

    return repeated, times * events


def _measured(
    title: str,
    sizes: list[int],
    config_of: Callable[[int], PipelineConfig],
    rounds: int,
    least: int,
    forms: Iterable[str] = FORMS,
) -> str:
    """Return a table: a row a form, a column a size."""
    work, events = {}, {}
    for form in forms:
        for size in sizes:
            work[f"{form} {size}"], events[f"{form} {size}"] = _timed(config_of(size), form, least)
    seconds = in_turn(work, rounds, time.process_time)
    each = {name: scaled(samples, 1e9 / events[name]) for name, samples in seconds.items()}
    rows = []
    for form in forms:
        medians = [statistics.median(each[f"{form} {size}"]) for size in sizes]
        rows.append([form, *(ranged(each[f"{form} {size}"]) for size in sizes), growth(sizes, medians)])
    return table([title, *(f"{size:,}" for size in sizes), "so"], rows)


def _by_configs(sizes: list[int], rounds: int, events: int) -> str:
    """Return a table of the time of an event by how many configurations share a seed's draws."""
    work, happened = {}, {}
    for size in sizes:
        base = keeping_up(SLOTS, events, _LAW)
        configs = [base.replace(max_queue_tokens=(base.max_queue_tokens or 0) + step) for step in range(size)]
        cells = lean_cells(configs)
        run_cells(cells, 1)
        happened[str(size)] = (
            int(cells.events) * size
        )  # a token more in the cap changes a run by a few events

        def anew(cells=cells) -> None:  # type: ignore[no-untyped-def]
            run_cells(cells, 0)
            run_cells(cells, 1)  # another seed: its rollouts are drawn again

        work[str(size)] = anew
    seconds = in_turn(work, rounds, time.process_time)
    each = {name: scaled(samples, 1e9 / 2 / happened[name]) for name, samples in seconds.items()}
    medians = [statistics.median(each[str(size)]) for size in sizes]
    row = ["lean", *(ranged(each[str(size)]) for size in sizes), growth(sizes, medians)]
    return table(["configurations of a seed", *(f"{size:,}" for size in sizes), "so"], [row])


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure along each of four sizes."""
    events = 3_000 if tiny else 40_000
    cut = 2 if tiny else None
    found = Section("What the time of an event depends on")
    queue = [64, 512, 4_096, 16_384][:cut]
    limits = [1, 4, 16, 63][:cut]
    lengths = [1, 8, 64][:cut]
    configs = [1, 8, 64, 320][:cut]
    found.text += [
        f"Nanoseconds of processor time an event at {SLOTS} slots. Draws are made beforehand, but in the "
        "last table, which counts them: the configurations of a seed share them.",
        _measured("rollouts that wait", queue, lambda size: _queueing(size, events), rounds, events),
        _measured(
            "lag limit",
            limits,
            lambda size: keeping_up(SLOTS, events, _LAW).replace(max_policy_lag=size),
            rounds,
            events,
        ),
        _measured(
            "times the run's length",
            lengths,
            lambda size: keeping_up(SLOTS, size * events / 20, _LAW),
            rounds,
            events,
            ("lean", "general"),
        ),
        _by_configs(configs, rounds, events // 20),
    ]
    return found
