"""The axis ``max_lag`` around a run that follows a preset: the knob that the system calls so.

Most systems bound the lag by how far work may run ahead, each under a name of its own, and the field
``max_policy_lag`` has no effect beside it. ``--axis max_lag=1,2,4`` asks for the lag, whatever its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..presets.base import Knob, Preset
from ..presets.registry import find_preset, preset_lag_bound

_MOST = 32
LAG = "max_lag"


def lag_knob(config: PipelineConfig) -> tuple[str, dict[int, Any]] | None:
    """Return the knob that bounds a run's lag, and its value for each bound that it can give.

    Parameters
    ----------
    config : PipelineConfig
        Built from a preset.

    Returns
    -------
    tuple of str and dict, or None
        None for a run without a preset, and for one whose system bounds nothing.

    Examples
    --------
    >>> from lagsweep.sweeps.presets.registry import preset_config
    >>> name, values = lag_knob(preset_config("areal", max_head_offpolicyness=1))
    >>> name, values[2]
    ('max_head_offpolicyness', 2)
    """
    if config.preset is None:
        return None
    name, fields = config.preset
    best: tuple[str, dict[int, Any]] | None = None
    for knob in find_preset(name).knobs:
        found = _bounds(find_preset(name), fields, knob)
        if len(found) > 2 and (best is None or len(found) > len(best[1])):
            best = knob.name, found
    return best


def _bounds(preset: Preset, fields: Mapping[str, Any], knob: Knob) -> dict[int, Any]:
    """Return a knob's smallest value for each bound of the lag."""
    if knob.choices or isinstance(knob.default, bool):
        return {}
    found: dict[int, Any] = {}
    some = [k / 4 for k in range(4 * _MOST + 1)] if isinstance(knob.default, float) else range(_MOST + 1)
    for value in some:
        try:
            checked = knob.checked(value)
            bound = preset_lag_bound(preset.name, {**fields, knob.name: checked})
        except ConfigError:
            continue
        if bound is not None:
            found.setdefault(bound, checked)
    return found
