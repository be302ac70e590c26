"""Changes of a spec's base from outside, by flags or keywords: one that an axis leaves no cell is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...kernels.errors import ConfigError, Finding
from .axes import ENGINE_PREFIX, PRESET_PREFIX, field_of_axis, shown

_Made = TypeVar("_Made")


def made_with(
    build: Callable[[Mapping[str, Any]], _Made],
    changes: Mapping[str, Any],
    axes_of: Callable[[_Made], Iterable[str]],
    called: Callable[[str], str] = str,
) -> _Made:
    """Build something with changes of its base, and refuse those that have an effect in no cell.

    A value in the base of a file gives way to an axis; who gives one beside an axis means something else. A
    change that the base cannot do without has an effect, and stays.

    Parameters
    ----------
    build : callable
        Takes changes of the base: fields, fields of the engine, and knobs of the preset.
    changes : mapping
    axes_of : callable
        Gives the names of the axes of what was built.
    called : callable
        Gives what a change is called where it comes from, as a flag.

    Raises
    ------
    ConfigError
        With a line for each such change.

    Examples
    --------
    >>> made_with(lambda changes: {"max_lag": [1, 2]}, {"max_policy_lag": 7}, list)
    Traceback (most recent call last):
    lagsweep.kernels.errors.ConfigError: max_policy_lag: has no effect in any cell beside the axis max_lag...
    """
    made = build(changes)
    axes = {field_of_axis(name): name for name in axes_of(made)}
    findings = [
        Finding(
            called(name),
            f"has no effect in any cell beside the axis {axis}",
            shown(value),
            "Leave out one of the two, or give the axis this value alone.",
        )
        for name, value in changes.items()
        if (axis := _axis_in_place_of(name, axes)) and _can_do_without(build, changes, name)
    ]
    if findings:
        raise ConfigError(*findings)
    return made


def _axis_in_place_of(name: str, axes: Mapping[str, str]) -> str | None:
    """Return the axis that sets what a change sets: the field, the knob, or the engine as a whole."""
    of_engine = "engine" if name.startswith(ENGINE_PREFIX) else name
    return axes.get(name) or axes.get(f"{PRESET_PREFIX}{name}") or axes.get(of_engine)


def _can_do_without(
    build: Callable[[Mapping[str, Any]], _Made], changes: Mapping[str, Any], name: str
) -> bool:
    try:
        build({other: value for other, value in changes.items() if other != name})
    except ConfigError:
        return False
    return True
