"""From a step log to a configuration that predicts the run: fits, backtest, what the data leave open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars

from ...kernels.errors import ConfigError, Finding
from ..checks import RealNumber, WholeNumber, checked, text_of
from ..config.config import PipelineConfig
from .backtest import backtest
from .calibration import Calibration
from .estimates import Estimates, Values, config_of, estimate, step_seconds
from .phases import WORDS, column
from .ranges import ends_of, matched, predictions, speed_fit
from .setup import Setup, setup_of

FEWEST_STEPS = 20
HELD = 0.3
STEPS = 200  # of a run of the configuration


def calibrate(
    log: Any,
    *,
    preset: str | None = None,
    held: float = HELD,
    fit_steps: int | None = None,
    seed: int = 0,
    framework: str | None = None,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    **fields: Any,
) -> Calibration:
    """Fit a configuration to the step log of a run, and try it on the steps that the fit did not see.

    Parameters
    ----------
    log : path, list of paths, StepLog or polars.DataFrame
        What the run's trainer wrote, or its steps already read, with the canonical columns of
        :func:`read_steps`.
    preset : str, optional
        Whose rules the run follows; the other settings of the run are fields and knobs.
    held : float
        The last share of the steps, which are predicted and never fitted on.
    fit_steps : int, optional
        Fit on so many first steps instead, and hold the rest.
    seed : int
        Of the bootstrap and of the simulated runs.
    framework, columns, units
        As for :func:`read_steps`, where `log` is a file.
    **fields
        Fields of the configuration and knobs of the preset that are known, such as ``group_size=8``,
        ``rollout_workers=512``, ``engine=Engine(...)``; what is left out is read from the log or assumed,
        and said.

    Returns
    -------
    Calibration

    Raises
    ------
    ConfigError
        For a log with too few steps or without times, and for what a configuration refuses.

    Examples
    --------
    >>> from lagsweep.sweeps.calibrate.simulated_log import step_log_of
    >>> from lagsweep.sweeps.presets.registry import preset_config
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> known = preset_config("areal", max_head_offpolicyness=1, batch_groups=8, group_size=4,
    ...                       rollout_workers=64, duration_seconds=1e6, stop_after_updates=80)
    >>> log = step_log_of(simulate_pipeline(known, rollouts=True))
    >>> found = calibrate(log, preset="areal", max_head_offpolicyness=1, group_size=4, rollout_workers=64)
    >>> round(found.config.train_overhead_seconds, 2), round(1 / found.config.train_tokens_per_second, 6)
    (1.0, 0.002857)
    """
    share = checked(RealNumber, "held", held, low=0.0, high=0.9)
    seed = checked(WholeNumber, "seed", seed, low=0)
    frame, source, said = _steps(log, framework, columns, units)
    if preset is not None:
        preset = text_of("preset", preset, "Name one that lagsweep presets lists.")
    frame = _usable(frame)
    first = _fitted(len(frame), share, fit_steps)
    fitted, rest = frame[:first], frame[first:]
    setup = setup_of(fitted, preset, fields)
    found = estimate(fitted, setup, seed=seed)
    values, best, found = matched(setup, found, seed=seed)
    ends = ends_of(setup, found, values, seed=seed)
    fits = [*found.fits, speed_fit(setup, found, values, ends, best)]
    return Calibration(
        source=source,
        config=_as_it_is(setup, found, values),
        setup=setup,
        estimates=found,
        values=values,
        ends=tuple(ends),
        match=best,
        fits=tuple(fits),
        tests=tuple(backtest(setup, found, values, ends, rest, seed=seed)) if len(rest) else (),
        predictions=predictions(setup, found, values, ends, seed=seed),
        steps=frame,
        fitted=first,
        read=tuple(said),
        columns=_columns(log, frame),
        seed=seed,
    )


def _as_it_is(setup: Setup, found: Estimates, values: Values) -> PipelineConfig:
    """Return the configuration with how long a run of it takes."""
    several = int(setup.config().updates_per_batch)
    step = found.step.value
    more = {
        "duration_seconds": float(f"{10 * step * STEPS:.3g}"),
        "stop_after_updates": STEPS * several,
        "warmup_seconds": float(f"{step * STEPS / 10:.3g}"),
    }
    return config_of(setup, found, values, more=more)


def _steps(log: Any, framework: Any, columns: Any, units: Any) -> tuple[polars.DataFrame, str, list[Finding]]:
    """Return the steps of what was given, where they are from, and what its reader found."""
    if isinstance(log, polars.DataFrame):
        return log, "a frame", []
    way_out = "Give a frame of steps with the canonical columns."
    raise ConfigError("log", "must be a step log", log, way_out)


def _columns(log: Any, frame: polars.DataFrame) -> dict[str, str]:
    """Return what each column was read from, in words."""
    return {name: name for name in frame.columns if name in WORDS}


def _usable(frame: polars.DataFrame) -> polars.DataFrame:
    """Keep the steps of the run that have a time, in their order.

    Raises
    ------
    ConfigError
        For several runs in one log, or too few steps.
    """
    seconds = step_seconds(frame)
    if not np.isfinite(seconds).any():
        names = ", ".join(WORDS)
        way_out = f"Name a column: --column step_seconds=NAME. Known are {names}."
        raise ConfigError("log", "must hold seconds of its steps or of their parts", frame.columns, way_out)
    kept = frame.filter(polars.Series(np.isfinite(seconds)))
    if len(kept) < FEWEST_STEPS:
        raise ConfigError(
            "log", f"must have at least {FEWEST_STEPS} steps with a time", len(kept), "Let the run go on."
        )
    return kept


def _fitted(steps: int, share: float, fit_steps: Any) -> int:
    """Return how many first steps are fitted on."""
    if fit_steps is None:
        return max(min(FEWEST_STEPS, steps), steps - int(share * steps))
    return int(
        checked(
            WholeNumber, "fit_steps", fit_steps, low=FEWEST_STEPS, high=steps,
            rule=f"must be from {FEWEST_STEPS} to the log's {steps:,} steps",
        )
    )  # fmt: skip
