"""A measured engine in the place of a data sheet's: its coefficients, with their intervals if it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import WholeNumber, checked, path_of
from ..config.engine import Engine
from ..spec.engine_files import FITTED, engine_table
from ..user_files import decoded, parse_toml, read_bytes
from .inputs import LOW, Input

_WORDS = {
    "step_seconds": ("fixed part of a step", "ms", 1e3),
    "step_seconds_per_rollout": ("step, for each rollout", "µs", 1e6),
    "step_seconds_per_context_token": ("step, for each token of context", "ns", 1e9),
    "prefill_seconds_per_token": ("prefill of a token", "µs", 1e6),
}


@dataclass(frozen=True)
class MeasuredEngine:
    """An engine as a file has it.

    Attributes
    ----------
    engine : Engine
    tensor_parallel : int or None
        Of the measurement, where the file says so.
    intervals : mapping
        Coefficient -> (low, high), where the file has them.
    source : str
        The file's name.
    """

    engine: Engine
    tensor_parallel: int | None
    intervals: Mapping[str, tuple[float, float]]
    source: str


def load_measured(path: str | Path) -> MeasuredEngine:
    """Read an engine that was measured, as ``lagsweep engine fit`` writes it.

    Raises
    ------
    ConfigError
        For a file that cannot be read, or fields that are no engine's.
    """
    path = path_of("measured", path)
    engine = Engine(**engine_table(path))
    text = decoded(read_bytes(path, "measured"), "measured", str(path))
    about = parse_toml(text, "measured", str(path)).get(FITTED, {})
    about = about if isinstance(about, Mapping) else {}
    ranks = about.get("tensor_parallel")
    if ranks is not None:
        ranks = checked(WholeNumber, "measured: fitted.tensor_parallel", ranks, low=1)
    given = about.get("intervals", {})
    intervals = {
        name: ends
        for name in _WORDS
        if isinstance(given, Mapping) and (ends := _ends(given.get(name), getattr(engine, name))) is not None
    }
    return MeasuredEngine(engine, ranks, intervals, Path(path).name)


def _ends(entry: Any, value: float) -> tuple[float, float] | None:
    """Return an interval that holds its value; none where there is no such thing."""
    if not isinstance(entry, Mapping):
        return None
    low, high = entry.get("low"), entry.get("high")
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        return None
    assert low is not None
    assert high is not None
    return (min(low, value), max(high, value)) if 0 <= low <= high else None


def measured_inputs(measured: MeasuredEngine) -> list[Input]:
    """Return a measured engine's coefficients as inputs, with their intervals as ranges.

    Examples
    --------
    >>> found = measured_inputs(MeasuredEngine(Engine(step_seconds=0.01), 2, {}, "engine.toml"))
    >>> found[0].words, found[0].value, found[0].is_open
    ('fixed part of a step', 0.01, False)
    """
    found = []
    for name, (words, unit, scale) in _WORDS.items():
        value = float(getattr(measured.engine, name))
        low, high = measured.intervals.get(name, (value, value))
        found.append(
            Input(
                name=name, words=words, value=value, low=low, high=high, faster=LOW, unit=unit, scale=scale,
                source=f"measured: {measured.source}",
            )
        )  # fmt: skip
    return found
