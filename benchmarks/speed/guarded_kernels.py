"""Work of the guarded kernels: ``python guarded_kernels.py lean=1 general=3`` does each so many times over.

Prints, as JSON, over how many events (of a loop) or weights (of an ESS) one time goes. Nothing here looks at
a clock: another program counts the instructions of this one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import numpy as np
from loops import general_run, lean_cells, lean_events, run_cells, run_general

from lagsweep import LengthLaw, PipelineConfig, preset_config
from lagsweep.kernels import effective_sample_size, offsets_from_lengths

LAW = LengthLaw.lognormal()


def lean() -> tuple[Callable[[], object], int]:
    """Twenty runs of 240 s at 8 slots, the draws of a seed shared as in a sweep."""
    base = PipelineConfig(
        rollout_workers=8, response_length=LAW, batch_tokens=8_000, duration_seconds=240.0
    ).replace(train_tokens_per_second=480.0)
    configs = [
        base.replace(max_queue_tokens=12_000 * step, max_policy_lag=lag)
        for step in (1, 2, 4, 8)
        for lag in (0, 1, 2, 4, 8)
    ]
    cells = lean_cells(configs)
    return (lambda: run_cells(cells, seed=3)), sum(map(lean_events, configs))


def general() -> tuple[Callable[[], object], int]:
    """One run at 8 slots with every option off."""
    config = PipelineConfig(
        rollout_workers=8, response_length=LAW, batch_tokens=8_000, duration_seconds=3_000.0
    ).replace(train_tokens_per_second=480.0, max_queue_tokens=24_000)
    run = run_general(general_run(config, 1 << 10))
    return (lambda: run_general(run)), int(run.state.events)


def preset() -> tuple[Callable[[], object], int]:
    """One run of the preset that costs most at an event."""
    config = preset_config(
        "slime_fully_async",
        rollout_workers=64,
        batch_groups=8,
        group_size=8,
        response_length=LAW,
        train_tokens_per_second=4_000.0,
        train_overhead_seconds=1.0,
        sync_seconds=1.0,
        duration_seconds=300.0,
    )
    run = run_general(general_run(config, 1 << 10))
    return (lambda: run_general(run)), int(run.state.events)


def ess() -> tuple[Callable[[], object], int]:
    """Groups of 1 to 64 weights."""
    rng = np.random.default_rng(1)
    offsets = offsets_from_lengths(rng.integers(1, 65, 400))
    weights = rng.normal(0, 0.5, int(offsets[-1]))
    return (lambda: effective_sample_size(log_weights=weights, group_offsets=offsets)), weights.size


KERNELS: dict[str, Callable[[], tuple[Callable[[], object], int]]] = {
    function.__name__: function for function in (lean, general, preset, ess)
}


def main(arguments: Sequence[str]) -> None:
    """Do the work asked for, and say how much one time is."""
    asked = {name: int(times) for name, _, times in (one.partition("=") for one in arguments)}
    sizes = {}
    for name, times in asked.items():
        work, sizes[name] = KERNELS[name]()
        for _ in range(times):
            work()
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(sys.argv[1:])
