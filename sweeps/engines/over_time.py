"""What happened on engines over time, out of a simulation's own frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..runs.engines import EngineResult


@dataclass(frozen=True)
class OverTime:
    """Levels of one engine, or of all together, from each change on.

    Attributes
    ----------
    seconds : ndarray
    levels : mapping of str to ndarray
        ``running``, ``waiting``, ``kv_tokens`` and ``preemptions`` so far.
    end : float
        When the last request ended.
    """

    seconds: np.ndarray
    levels: dict[str, np.ndarray]
    end: float

    def most(self, name: str) -> float:
        """Return the highest level."""
        values = self.levels[name]
        return float(values.max()) if len(values) else 0.0


def most_at_once(result: EngineResult) -> tuple[int, int, int]:
    """Return the most rollouts that ran, that waited, and the most tokens of context, on any engine."""
    frame = result.timeline_frame()
    running, waiting, context = (
        int(frame[name].to_numpy().max(initial=0)) for name in ("running", "waiting", "kv_tokens")
    )
    return running, waiting, context


def over_time(result: EngineResult, arrival_seconds: np.ndarray | None, engine: int = 0) -> OverTime:
    """Return one engine's levels.

    Preemptions are what is missing: at a boundary at which something is preempted nothing is admitted, so
    the rollouts that are gone and have not ended were preempted.
    """
    timeline, requests = result.timeline_frame(), result.requests_frame()
    own = timeline.filter(timeline["engine"] == engine)
    seconds = own["seconds"].to_numpy().astype(np.float64)
    running = own["running"].to_numpy().astype(np.int64)
    levels: dict[str, Any] = {
        "running": running,
        "waiting": own["waiting"].to_numpy().astype(np.int64),
        "kv_tokens": own["kv_tokens"].to_numpy().astype(np.int64),
    }
    ends = requests["end_to_end_seconds"].to_numpy()
    ends = ends + (0.0 if arrival_seconds is None else arrival_seconds)
    mine = np.sort(ends[requests["engine"].to_numpy() == engine])
    ended = np.searchsorted(mine, seconds + 1e-9)
    gone = -(np.diff(running, prepend=0) + np.diff(ended, prepend=0))
    levels["preemptions"] = np.cumsum(np.maximum(gone, 0))
    return OverTime(seconds, levels, float(ends.max()) if len(ends) else 0.0)
