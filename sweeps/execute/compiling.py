"""Say that kernels are compiled, once, and keep that time out of every figure of the run."""

from __future__ import annotations

import time

import numpy as np

from ..config.config import PipelineConfig
from ..runs.failing import runs_together
from ..runs.many import simulate_batch
from ..spec.cells import unchecked_config
from .progress import Progress, duration

COMPILING = "compiling the kernels; this happens once and takes ten seconds to a minute"


def compile_first(config: PipelineConfig, progress: Progress) -> float:
    """Compile the kernels that a configuration needs, if they are not kept from an earlier run.

    Parameters
    ----------
    config : PipelineConfig
        Any cell of the sweep, or its base.
    progress : Progress
        Told before and after.

    Returns
    -------
    float
        The seconds it took; 0 if nothing was to do.
    """
    if kernels_are_kept(config.is_level_1) and _cells_are_kept(config):
        return 0.0

    progress.note(COMPILING)
    began = time.perf_counter()
    # A sweep's base may hold what has an effect in other cells only; that is left out here as in a cell.
    one_update = unchecked_config(config, {"stop_after_updates": 1})
    simulate_batch([one_update], np.zeros(1, np.uint64))
    seconds = time.perf_counter() - began
    progress.note(f"compiled in {duration(seconds)}")
    return seconds


def kernels_are_kept(level_1: bool) -> bool:
    """Tell whether the machine code of this exact source is in the cache (or nothing is compiled at all)."""
    from ...kernels._jit import code_is_kept

    # The one that is compiled last.
    if level_1:
        from ...kernels.pipeline.lean_cells import run_cells_kernel as last_kernel
    else:
        from ...kernels.pipeline.summary import general_metrics_kernel as last_kernel
    return code_is_kept(last_kernel)


def _cells_are_kept(config: PipelineConfig) -> bool:
    """Tell whether what runs many cells above level 1 in one call is in the cache, where it is needed."""
    from ...kernels._jit import code_is_kept
    from ...kernels.pipeline.general_cells import run_general_cells_kernel

    return config.is_level_1 or not runs_together(config) or code_is_kept(run_general_cells_kernel)
