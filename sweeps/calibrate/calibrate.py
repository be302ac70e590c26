"""From a step log to a configuration that predicts the run: fits, backtest, what the data leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars

from ...kernels.errors import ConfigError
from ..checks import RealNumber, WholeNumber, checked, text_of
from ..config.config import PipelineConfig
from .assumed import assumptions
from .backtest import backtest
from .calibration import Calibration
from .configuration import HORIZON_SECONDS, Values, config_of
from .estimates import Estimates, estimate
from .gpus import Gpus, gpus_of
from .log_steps import AnyPath, LogInput, LogSteps, engine_of, fitted_steps, read_log, read_responses, usable
from .ranges import ends_of, matched, predictions, speed_fit
from .setup import Setup, setup_of, with_batch
from .spread import with_lengths

if TYPE_CHECKING:
    from ..config.settings import PresetSettings
    from ..logs.engine_log import EngineLog
    from ..logs.lengths import LengthRecords

HELD = 0.3
STEPS = 200  # of a run of the configuration


def calibrate(
    log: LogInput,
    *,
    preset: str | None = None,
    lengths: AnyPath | LengthRecords | None = None,
    samples: AnyPath | EngineLog | None = None,
    rollout_gpus: float | None = None,
    trainer_gpus: float | None = None,
    other_sizes: Mapping[float, LogInput] | None = None,
    held: float = HELD,
    fit_steps: int | None = None,
    framework: str | None = None,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    **fields: Unpack[PresetSettings],
) -> Calibration:
    """Fit a configuration to the step log of a run, and try it on the steps that the fit did not see.

    Parameters
    ----------
    log : path, list of paths, StepLog or polars.DataFrame
        What the run's trainer wrote, or its steps already read, with the canonical columns of
        :func:`read_step_log`.
    preset : str, optional
        Whose rules the run follows; the other settings of the run are fields and knobs.
    lengths : path or LengthRecords, optional
        Single responses, with their prompts: they tell the spread of lengths, as :func:`read_lengths` reads
        them.
    samples : path or EngineLog, optional
        What the inference engines said of themselves: the engine is fitted to it, as
        :func:`fit_engine_samples` does, and the speed is not searched.
    rollout_gpus, trainer_gpus : float, optional
        GPUs of the two sides, for questions about other numbers of them.
    other_sizes : mapping of float to log, optional
        Logs of the same training on other numbers of the trainer's GPUs: two sizes tell what GPUs divide.
    held : float
        The last share of the steps, which are predicted and never fitted on.
    fit_steps : int, optional
        Fit on so many first steps instead, counted by the log's own numbers, and hold the rest.
    framework, columns, units
        As for :func:`read_step_log`, where `log` is a file.
    **fields
        Fields of the configuration and knobs of the preset that are known, such as ``group_size=8``,
        ``rollout_workers=512``, ``engine=Engine(...)``; what is left out is read from the log or assumed,
        and said. ``seed`` is that of the bootstrap and of the simulated runs.

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
    return fitted_to(
        read_given(
            log,
            preset=preset,
            lengths=lengths,
            samples=samples,
            rollout_gpus=rollout_gpus,
            trainer_gpus=trainer_gpus,
            other_sizes=other_sizes,
            held=held,
            fit_steps=fit_steps,
            framework=framework,
            columns=columns,
            units=units,
            fields=dict(fields),
        )
    )


@dataclass(frozen=True)
class Given:
    """What a log and what is known of its run tell before anything is simulated."""

    steps: LogSteps
    frame: polars.DataFrame
    first: int
    setup: Setup
    found: Estimates
    gpus: Gpus
    seed: int


def read_given(
    log: LogInput,
    *,
    preset: str | None,
    lengths: AnyPath | LengthRecords | None,
    samples: AnyPath | EngineLog | None,
    rollout_gpus: float | None,
    trainer_gpus: float | None,
    other_sizes: Mapping[float, LogInput] | None,
    held: float,
    fit_steps: int | None,
    framework: str | None,
    columns: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
    fields: dict[str, Any],
) -> Given:
    """Read and check all that :func:`calibrate` is given, by its parameters.

    Raises
    ------
    ConfigError
        As :func:`calibrate` does.
    """
    share = checked(RealNumber, "held", held, low=0.0, high=0.9)
    seed = checked(WholeNumber, "seed", fields.pop("seed", 0), low=0, high=2**63)
    steps = read_log(log, framework, columns, units)
    if preset is not None:
        preset = text_of("preset", preset, "Name one that lagsweep presets lists.")
    frame = usable(steps.frame, steps.frameworks)
    first = fitted_steps(frame, share, fit_steps)
    records = read_responses(lengths)
    if other_sizes is not None and not isinstance(other_sizes, dict):
        raise ConfigError("other_sizes", "must map GPUs to logs", other_sizes, "Write {64: 'log.csv'}.")
    if samples is not None:
        fields["engine"] = engine_of(samples, fields.get("engine"))
    setup = setup_of(frame[:first], preset, fields, frameworks=steps.frameworks, holds=steps.holds)
    frame = with_batch(frame, setup)
    found = estimate(frame[:first], setup, seed=seed)
    if records is not None:
        found = replace(found, lengths=with_lengths(found.lengths, records, seed=seed))
    gpus = gpus_of(
        rollout_gpus,
        trainer_gpus,
        _trained_on(other_sizes or {}, found, seed),
        _training(found, found.tokens),
    )
    return Given(steps, frame, first, setup, found, gpus, seed)


def fitted_to(given: Given) -> Calibration:
    """Fit the rest by simulated runs, and predict the steps that were held."""
    setup, seed, frame, steps = given.setup, given.seed, given.frame, given.steps
    rest = frame[given.first :]
    values, best, found = matched(setup, given.found, seed=seed)
    ends = ends_of(setup, found, values, known=best.known, seed=seed)
    told = predictions(setup, found, values, ends, seed=seed)
    speed = speed_fit(found, values, ends, best, told["decode_speed"])
    fits = [*found.fits, *([speed] if speed else []), *given.gpus.fits]
    return Calibration(
        source=steps.source,
        config=_as_it_is(setup, found, values),
        setup=setup,
        estimates=found,
        values=values,
        ends=tuple(ends),
        match=best,
        fits=tuple(fits),
        tests=tuple(backtest(setup, found, values, ends, rest, seed=seed)) if len(rest) else (),
        predictions=told,
        steps=frame,
        fitted=given.first,
        read=steps.findings,
        columns=steps.columns,
        seed=seed,
        gpus=given.gpus,
        assumed=assumptions(setup, found, values, best),
    )


def _training(found: Estimates, tokens: float) -> float:
    """Return the seconds that all phases take for so many tokens."""
    return float(sum(one.seconds(float(np.nan_to_num(tokens))) for one in found.phases))


def _trained_on(logs: Mapping[Any, Any], own: Estimates, seed: int) -> dict[float, float]:
    """Return the seconds of training on other numbers of GPUs, for as many tokens as this run's."""
    seconds = {}
    for gpus, log in logs.items():
        size = checked(RealNumber, "other_sizes", gpus, low=1e-6)
        steps = read_log(log, None, None, None)
        frame = usable(steps.frame, steps.frameworks)
        setup = setup_of(frame, None, {}, frameworks=steps.frameworks, holds=steps.holds)
        seconds[size] = _training(estimate(with_batch(frame, setup), setup, seed=seed), own.tokens)
    return seconds


def _as_it_is(setup: Setup, found: Estimates, values: Values) -> PipelineConfig:
    """Return the configuration with how long a run of it takes."""
    several = int(setup.config().updates_per_batch)
    step = found.step.value
    more = {
        "duration_seconds": min(HORIZON_SECONDS, float(f"{10 * step * STEPS:.3g}")),
        "stop_after_updates": STEPS * several,
        "warmup_seconds": float(f"{step * STEPS / 10:.3g}"),
    }
    return config_of(setup, found, values, more=more)
