"""The peak over phases: components of one phase live together, phases follow one another.

Colocated training and generation need the largest phase, not the sum of everything that ever exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import Integers, Numbers
from ..errors import ConfigError
from ._exact import Exact, amount, check_shapes


@dataclass(frozen=True, eq=False)
class PeakMemory:
    """The largest phase and how it compares with a device.

    ``phase`` and ``dominant_component`` are names; for arrays of bytes they are arrays of names.
    ``headroom_bytes`` (negative when memory is missing) and ``fits`` are None without a device, as
    ``dominant_component`` is for a phase without components. ``shared_components`` are the named components
    that lie in every phase with the same bytes.
    """

    phase: str | NDArray[np.str_]
    peak_bytes: Integers
    phase_totals: dict[str, Integers]
    phase_components: dict[str, dict[str | int, Integers]]
    dominant_component: str | NDArray[np.str_]
    shared_components: tuple[str, ...]
    device_bytes: Integers | None = None
    headroom_bytes: Integers | None = None
    phase_headroom_bytes: dict[str, Integers] | None = None
    fits: bool | NDArray[np.bool_] | None = None


def _components(phase: Any, parts: Any) -> dict[Any, Exact]:
    """Read a phase's components; a plain sequence names them by position."""
    field = f"phases[{phase!r}]"
    if isinstance(parts, Mapping):
        return {name: amount(f"{field}[{name!r}]", value) for name, value in parts.items()}
    if isinstance(parts, np.ndarray) and parts.ndim:
        parts = list(parts)
    if not isinstance(parts, list | tuple):
        way_out = "Give {phase: {name: bytes}} or {phase: [bytes, ...]}."
        raise ConfigError(field, "must list its components", parts, way_out)
    return {place: amount(f"{field}[{place}]", value) for place, value in enumerate(parts)}


def _first_largest(names: list[Any], values: list[Any], shape: tuple[int, ...]) -> Any:
    """Name the largest value, the first of equals; element by element for arrays."""
    if not names:
        return None
    if not shape:
        return names[max(range(len(values)), key=lambda place: values[place])]
    stacked = np.stack([np.broadcast_to(value, shape) for value in values])
    labels = np.empty(len(names), dtype=object)
    labels[:] = names
    return labels[np.argmax(stacked, axis=0)]


def _shared(phases: Mapping[str, dict[Any, Any]]) -> tuple[str, ...]:
    first, *others = phases.values()
    return tuple(
        name
        for name, value in first.items()
        if isinstance(name, str)
        and all(name in other and np.array_equal(value, other[name]) for other in others)
    )


def _dominant(phase: Any, components: Mapping[str, dict[Any, Any]], shape: tuple[int, ...]) -> Any:
    if not shape:
        parts = components[phase]
        return _first_largest(list(parts), list(parts.values()), ())
    dominant = np.empty(shape, dtype=object)
    for name, parts in components.items():
        chosen = phase == name
        if parts and chosen.any():
            dominant[chosen] = _first_largest(list(parts), list(parts.values()), shape)[chosen]
    return dominant


def peak_memory(
    phases: Mapping[str, Mapping[str, Numbers] | Sequence[Numbers]], device_bytes: Numbers | None = None
) -> PeakMemory:
    """Add up each phase's live components and take the largest phase.

    Parameters
    ----------
    phases : mapping
        ``{phase: [bytes, ...]}`` or ``{phase: {component: bytes}}``; bytes are numbers or arrays that
        broadcast together. A phase may be empty and costs 0.
    device_bytes : int or array_like, optional
        The device's memory, for the headroom.

    Returns
    -------
    PeakMemory
        ``phase``, ``peak_bytes``, ``phase_totals``, and what else is known about them. The first phase wins a
        tie, in the mapping's order, as ``max`` does; components of a plain list are named by position.

    Raises
    ------
    ConfigError
        No phase at all (there is no peak of nothing), negative or NaN bytes.

    Examples
    --------
    >>> peak = peak_memory({"rollout": {"weights": 14, "kv": 16}, "training": {"weights": 14, "adam": 36}},
    ...                    device_bytes=48)
    >>> peak.phase, peak.peak_bytes, peak.dominant_component, peak.headroom_bytes, peak.fits
    ('training', 50, 'adam', -2, False)
    """
    if not isinstance(phases, Mapping) or not phases:
        rule = "must name at least one phase" if isinstance(phases, Mapping) else "must map names to sizes"
        raise ConfigError("phases", rule, phases, "Give {'rollout': [...], 'training': [...]}.")
    for name in phases:
        if not isinstance(name, str):
            raise ConfigError("phases", "must name each phase by a text", name, "Give {'rollout': ...}.")
    read = {phase: _components(phase, parts) for phase, parts in phases.items()}
    device = None if device_bytes is None else amount("device_bytes", device_bytes)
    flat = {f"{phase}[{name}]": value for phase, parts in read.items() for name, value in parts.items()}
    shape = check_shapes(**flat, **({} if device is None else {"device_bytes": device}))
    totals = {
        phase: sum(parts.values(), Exact(0)).broadcast(shape).result(f"phases[{phase!r}]")
        for phase, parts in read.items()
    }
    names, values = list(totals), list(totals.values())
    phase = _first_largest(names, values, shape)
    peak = np.max(np.stack(values), axis=0) if shape else max(values)
    components = {
        phase_name: {name: value.result(str(name)) for name, value in parts.items()}
        for phase_name, parts in read.items()
    }
    room: dict[str, Any] = {}
    if device is not None:
        # A device holds whole bytes: round its size down, not up.
        whole = device.floor_divide(1).broadcast(shape).result("device_bytes")
        left = {name: whole - total for name, total in totals.items()}
        room = {
            "device_bytes": whole,
            "headroom_bytes": whole - peak,
            "phase_headroom_bytes": left,
            "fits": whole >= peak,
        }
    return PeakMemory(
        phase, peak, totals, components, _dominant(phase, components, shape), _shared(components), **room
    )
