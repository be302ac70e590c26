"""Windows of updates by which a sweep reports: how many there are, and which cells can have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked
from ..runs.windows import NO_WINDOWS, Windows

if TYPE_CHECKING:
    from .spec import SweepSpec

MOST_WINDOWS = 100_000
_STOP = "stop_after_updates"


def windows_of(spec: SweepSpec) -> Windows:
    """Return the windows of a checked spec."""
    if spec.windows is None:
        return NO_WINDOWS
    longest = max(stop for stop in _stops(spec) if stop is not None)
    return Windows(spec.windows, -(-longest // spec.windows))


def _stops(spec: SweepSpec) -> list[int | None]:
    """Return the updates after which cells stop."""
    for name, field in spec.design.fields.items():
        if field == _STOP:
            return list(spec.design.columns[name][1])
    return [spec.base.stop_after_updates]


def checked_windows(spec: SweepSpec) -> int:
    """Check the key ``windows`` of a spec, and that every cell stops after some updates.

    Raises
    ------
    ConfigError
    """
    updates = checked(WholeNumber, "windows", spec.windows, low=1, high=2**52)
    stops = _stops(spec)
    if any(stop is None for stop in stops):
        rule = "needs stop_after_updates in every cell"
        raise ConfigError("windows", rule, updates, "Set it in the base, as stop_after_updates = 400.")
    if max(stop for stop in stops if stop is not None) > MOST_WINDOWS * updates:
        rule = f"must give at most {MOST_WINDOWS:,} windows"
        raise ConfigError("windows", rule, updates, "Take longer windows, or stop after fewer updates.")
    return updates
