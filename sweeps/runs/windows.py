"""A run by windows of updates: sums over its batches and causes, not a second accounting.

Window i runs from the end of update i·n (the first: from time 0, warm-up or not) to the end of update
(i + 1)·n. A step that makes several updates ends them all, so a window holds whole steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels.pipeline.metrics import WINDOW_METRICS


@dataclass(frozen=True)
class Windows:
    """Windows of so many updates, and how many there are; none where the count is 0."""

    updates: int = 0
    count: int = 0


NO_WINDOWS = Windows()


def window_values(rows: np.ndarray, windows: Windows) -> dict[str, np.ndarray]:
    """Return each variable of the windows of one run, by name.

    Parameters
    ----------
    rows : ndarray
        Every batch of the run, as the general loop records them.
    windows : Windows

    Returns
    -------
    dict of ndarray
        One value a window: NaN, or 0 for counts, where the window's last update did not come.
    """
    found = {
        metric.name: np.full(windows.count, np.nan if metric.dtype == "float64" else 0, metric.dtype)
        for metric in WINDOW_METRICS
    }
    ends = [int(np.searchsorted(rows["update"], updates)) + 1 for updates in _last_updates(windows)]
    came = sum(end <= len(rows) for end in ends)
    for window, (first, last) in enumerate(zip([0, *ends], ends[:came])):
        begun = int(rows["end"][first - 1]) if first else 0
        before = int(rows["update"][first - 1]) if first else 0
        for name, value in _sums(rows[first:last], begun, before).items():
            found[name][window] = value
    return found


def _last_updates(windows: Windows) -> list[int]:
    return [windows.updates * (window + 1) for window in range(windows.count)]


def _sums(batches: np.ndarray, begun: int, before: int) -> dict[str, float]:
    """Sum the batches of one window; it begins at tick `begun`, after update `before`."""
    if not len(batches):  # its updates came in the step that ended the window before
        return {}
    end = int(batches["end"][-1])
    seconds = (end - begun) / 1e6
    tokens, rollouts = int(batches["tokens"].sum()), int(batches["rollouts"].sum())
    busy = int((batches["end"] - batches["start"]).sum())
    updates = int(batches["update"][-1]) - before
    effective = float(np.sum(batches["tokens"] * batches["expected_ess"]))
    return {
        "window_seconds_per_update": seconds / updates,
        "window_trained_tokens_per_second": tokens / seconds if seconds else np.nan,
        "window_effective_tokens_per_second": effective / seconds if seconds else np.nan,
        "window_mean_lag": float(np.mean(batches["lag_sum"] / batches["rollouts"])),
        "window_mean_expected_normalized_ess": float(np.mean(batches["expected_ess"])),
        "window_trainer_wait_seconds": (end - begun - busy) / 1e6,
        "window_discarded_rollouts": int(batches["discarded"].sum()),
        "window_mean_tokens": tokens / rollouts,
    }
