"""What a search gives: the choice, how sure it is, what was tried, and what that does not cover."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..json_text import plain_data
from ..spec.axes import plain

if TYPE_CHECKING:
    import polars

    from ..config.config import PipelineConfig


@dataclass(frozen=True)
class SearchResult:
    """The best setting that a search found; ``print`` it.

    Attributes
    ----------
    objectives : tuple of (metric, "maximize" or "minimize", unit)
    bounds : tuple of (name, metric, limit)
    settings : dict
        Axis -> value of the choice; empty when nothing is admissible, and with two objectives.
    value, low, high : float
        Mean of the objective over the choice's fresh seeds and its interval at `confidence`.
    decided : bool
        Whether the choice is the best candidate with the asked probability (with two objectives: whether
        there is a frontier). False when the budget ran out before.
    confidence, indifference : float
        The indifference is a share of the best mean.
    candidates : polars.DataFrame
        One row for each candidate of the last stage, best first: its settings, ``explored`` (the mean that
        made it a candidate), mean and half width over fresh seeds, ESS, lag, ``verdict``: "chosen" ("leads"
        where that is not decided), "near" for one within the indifference of it, "left out", "kept" for one
        that is still in the running or on the frontier, "breaks a bound", "stalls".
    runs : dict
        Stage -> runs it took.
    tried, admissible, refused : int
        Points that were run, those that kept the bounds, and those that contradict themselves.
    points : float
        How many points the space has; infinite with a range of numbers between.
    equal_runs : int
        What the candidates would have needed without leaving any out; 0 where that is not known.
    doubts : tuple of str
    folder : Path, optional
        Where the stages are kept.
    config : PipelineConfig, optional
        Of the choice.
    """

    objectives: tuple[tuple[str, str, str], ...]
    bounds: tuple[tuple[str, str, float], ...]
    settings: dict[str, Any]
    value: float
    low: float
    high: float
    decided: bool
    confidence: float
    indifference: float
    candidates: polars.DataFrame = field(repr=False)
    runs: dict[str, int]
    tried: int
    admissible: int
    refused: int
    points: float
    equal_runs: int
    doubts: tuple[str, ...]
    folder: Path | None = None
    config: PipelineConfig | None = field(default=None, repr=False)

    @property
    def frontier(self) -> polars.DataFrame:
        """The candidates that are not left out: with two objectives the frontier."""
        gone = ["near", "left out", "breaks a bound", "stalls"]
        return self.candidates.filter(~self.candidates["verdict"].is_in(gone))

    @property
    def total_runs(self) -> int:
        """How many runs the search took."""
        return sum(self.runs.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON (None for NaN and for infinite)."""
        return plain_data(
            {
                "objectives": [
                    {"metric": metric, "sense": sense, "units": units}
                    for metric, sense, units in self.objectives
                ],
                "bounds": [
                    {"name": name, "metric": metric, "limit": limit} for name, metric, limit in self.bounds
                ],
                "settings": {name: plain(value) for name, value in self.settings.items()},
                "value": self.value,
                "low": self.low,
                "high": self.high,
                "decided": self.decided,
                "confidence": self.confidence,
                "indifference": self.indifference,
                "candidates": list(self.candidates.iter_rows(named=True)),
                "runs": self.runs,
                "total_runs": self.total_runs,
                "tried": self.tried,
                "admissible": self.admissible,
                "refused": self.refused,
                "points": None if math.isinf(self.points) else int(self.points),
                "equal_runs": self.equal_runs,
                "doubts": list(self.doubts),
                "folder": None if self.folder is None else str(self.folder),
            }
        )

    def __str__(self) -> str:
        from .text import search_text

        return search_text(self)
