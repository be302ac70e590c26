"""Strategies of whole configurations: small ones of any option, and presets beside small workloads."""

from __future__ import annotations

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from ...kernels._arguments import choice
from ...kernels.errors import ConfigError
from ..checks import texts_of
from ..config.config import PipelineConfig
from ..laws.lengths import LengthLaw
from ..presets.base import Knob, KnobValue
from ..presets.registry import all_presets, find_preset, preset_config
from . import core_settings, engine_settings, general_settings
from .trainer_settings import trainer_settings

OPTIONS = ("core", "generation", "rules", "trainer", "engines")
# Some forty updates of a few groups, with lengths that differ.
_SMALL: dict[str, Any] = {
    "decode_tokens_per_second": 50.0,
    "train_tokens_per_second": 400.0,
    "train_overhead_seconds": 0.5,
    "response_length": LengthLaw.lognormal(median=60, sigma=1.0, minimum=5, maximum=400),
    "duration_seconds": 90.0,
}


def configurations(options: str = "rules") -> st.SearchStrategy[PipelineConfig]:
    """Return a strategy of small configurations in which much happens within a simulated minute.

    Queues fill and run empty, work grows too old, publications wait, and many events meet in one moment. Some
    configurations stall on purpose.

    Parameters
    ----------
    options : {"core", "generation", "rules", "trainer", "engines"}
        How far it goes; each has all of those before it.

    Returns
    -------
    SearchStrategy
        Of PipelineConfig.

    Raises
    ------
    ConfigError
        For other options.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(configurations("core"), lambda config: config.mode == "sequential").rollout_workers
    1
    """
    choice("options", options, OPTIONS)
    if options == "core":
        return core_settings.pipeline_settings().map(core_settings.to_config)
    if options == "engines":
        return engine_settings.engine_settings().map(engine_settings.to_config)
    if options == "trainer":
        return trainer_settings().map(general_settings.to_config)
    drawn = general_settings.general_settings(level_3=options == "rules")
    return drawn.map(general_settings.to_config)


@st.composite
def preset_configurations(
    draw: st.DrawFn, presets: str | tuple[str, ...] | None = None, **fields: Any
) -> PipelineConfig:
    """Draw the rules of a real system at some of its knobs, beside a small workload.

    Parameters
    ----------
    presets : str or tuple of str, optional
        Which ones; none: all.
    **fields
        Fields of the configuration and knobs that are not drawn.

    Returns
    -------
    PipelineConfig

    Raises
    ------
    ConfigError
        For an unknown preset or field.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(preset_configurations("areal", seed=3), lambda config: config.batch_groups == 2).seed
    3
    """
    names = tuple(all_presets()) if presets is None else texts_of("presets", presets, "Name presets.")
    preset = find_preset(draw(st.sampled_from(names)))
    workload = {
        "batch_groups": draw(st.integers(1, 4)),
        "group_size": draw(st.integers(1, 3)),
        "rollout_workers": draw(st.sampled_from([1, 2, 4, 8, 16])),
        "sync_seconds": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "filter_probability": draw(st.sampled_from([0.0, 0.0, 0.3])),
        "seed": draw(st.integers(0, 2**64 - 1)),
    }
    knobs = {knob.name: draw(_knob(knob)) for knob in preset.knobs if knob.name not in fields}
    usual: dict[str, Any] = {**_SMALL, **workload, **knobs}
    try:
        return preset_config(preset.name, **{**usual, **fields})
    except ConfigError:
        preset_config(preset.name, **{**_SMALL, **fields})  # what was given is wrong in itself
        reject()  # knobs that do not fit each other


def _knob(knob: Knob) -> st.SearchStrategy[KnobValue]:
    """Return a strategy of a knob's values: its default, its ends and a few between."""
    default = st.just(knob.default)
    if knob.choices:
        return st.sampled_from(knob.choices)
    if isinstance(knob.default, bool):
        return st.booleans()
    low = 0.0 if knob.minimum is None else knob.minimum
    if isinstance(knob.default, float):
        most = 2.0 if knob.maximum is None else knob.maximum
        return default | st.sampled_from([low, min(most, max(low, 0.5)), min(most, max(low, 1.0))])
    return default | st.integers(max(0, int(low)), max(0, int(low)) + 4)
