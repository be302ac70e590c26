"""One run as a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The events are those of :mod:`.trace.events`, in the JSON object form of Google's Trace Event
Format, plain or gzipped. A trace that no viewer would open is refused, with the number of its events.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import instance, real_numbers
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked, mapping_of, path_of
from ..files import write_atomically
from ..frame_files import checked_folder
from ..runs.result import PipelineResult
from .events import DISCARDS, QUEUE, SLOTS, STEPS, TRAINER, trace_events
from .tracks import Tracks, tracks_of

if TYPE_CHECKING:
    from ..config.config import PipelineConfig

MOST_EVENTS = 1_000_000  # about 130 MB of JSON; the viewers stagger beyond


@dataclass(frozen=True)
class TraceFile:
    """A trace that was written: where, how many events by kind, and how large."""

    path: Path
    events: int
    bytes: int
    rollouts: int
    steps: int
    flows: int
    discards: int


def write_trace(
    result: PipelineResult,
    path: str | Path,
    *,
    max_events: int = MOST_EVENTS,
    window_seconds: tuple[float, float] | None = None,
    about: dict[str, Any] | None = None,
) -> TraceFile:
    """Write one run as a trace.

    Parameters
    ----------
    result : PipelineResult
        Recorded with ``rollouts=True``.
    path : path
        ``.json`` or ``.json.gz``.
    max_events : int
        Refuse a trace of more.
    window_seconds : (float, float), optional
        Keep what touches this part of the simulated time.
    about : dict, optional
        Further entries of the file's ``otherData``.

    Returns
    -------
    TraceFile

    Raises
    ------
    ConfigError
        If the file's name or the window makes no sense, the run lacks its rollouts, or there are too many
        events.
    """

    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    max_events = checked(WholeNumber, "max_events", max_events, low=0, high=2**31)
    about = mapping_of("about", about, "Give names and values.")
    target = checked_trace_path(path_of("output", path))
    if "rollouts" not in result._columns:
        raise ConfigError("rollouts", "must have been recorded", None, "Simulate with rollouts=True.")
    window = _window(window_seconds)
    tracks = tracks_of(result)
    text = io.StringIO()
    head = {"displayTimeUnit": "ms", "otherData": _about(result, tracks) | about}
    try:
        begin = json.dumps(head)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError("about", f"must be plain data: {error}", about, "Give text and numbers.") from None
    text.write(begin[:-1] + ', "traceEvents": [\n')
    counts = _write_events(text, trace_events(result, tracks, window), max_events)
    total = sum(counts.values())
    if total > max_events:
        raise ConfigError(
            "max_events",
            f"must be at least {total} for this run",
            max_events,
            "Shorten the run, keep a window of it (--from-seconds, --to-seconds), or raise --max-events.",
        )
    text.write("\n]}\n")
    content = text.getvalue().encode("utf-8")
    if target.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    write_atomically(target, content)
    return TraceFile(
        path=target,
        events=total,
        bytes=len(content),
        rollouts=counts["X", SLOTS, 0],
        steps=counts["X", TRAINER, STEPS],
        flows=counts["s", SLOTS, 0],
        discards=counts["i", QUEUE, DISCARDS],
    )


def _write_events(text: io.StringIO, events: Iterator[dict[str, Any]], most: int) -> Counter[Any]:
    """Write events one a line, no more than allowed, and count all of them by kind and track."""
    counts: Counter[Any] = Counter()
    for number, event in enumerate(events):
        counts[event["ph"], event["pid"], 0 if event["pid"] == SLOTS else event["tid"]] += 1
        if number < most:
            line = json.dumps(event, separators=(",", ":"), allow_nan=False)
            text.write(f",\n{line}" if number else line)
    return counts


def checked_trace_path(path: Path) -> Path:
    """Refuse a trace file of unknown kind or in a folder that is not there.

    Raises
    ------
    ConfigError
    """

    if not path.name.endswith((".json", ".json.gz")):
        raise ConfigError("output", "must end in .json or .json.gz", str(path), "Name it trace.json.gz.")
    return checked_folder(path, "output")


def check_size_before(config: PipelineConfig, max_events: int) -> None:
    """Refuse a run that is far too large for a trace, or a window of one, before it is simulated.

    Raises
    ------
    ConfigError
    """
    seconds = config.rollout_overhead_seconds + config.lone_decode_seconds
    about = 4 * config.rollout_workers * config.duration_seconds / max(seconds, 1e-6)
    if about > 10 * max_events and config.stop_after_updates is None:
        raise ConfigError(
            "max_events",
            f"is far too small for this run, which may have {about:.2g} events",
            max_events,
            "Shorten --duration-seconds, or raise --max-events.",
        )


def _window(seconds: tuple[float, float] | None) -> tuple[float, float]:
    if seconds is None:
        return -np.inf, np.inf
    ends = np.atleast_1d(real_numbers("window", seconds, infinity=True))
    if ends.shape != (2,):
        raise ConfigError("window", "must be two numbers", seconds, "Give (from, to) in seconds.")
    low, high = ends.tolist()
    if not low < high:
        raise ConfigError("window", "must end after it begins", seconds, "Swap the two.")
    return low * 1e6, high * 1e6


def _about(result: PipelineResult, tracks: Tracks) -> dict[str, Any]:
    config = result.config
    found: dict[str, Any] = {
        "made_by": f"lagsweep {version('lagsweep')}",
        "config": config.to_dict(),
        "seed": config.seed,
        "simulated_seconds": tracks.end_of_run / 1e6,
    }
    if not tracks.exact_slots:
        found["tracks"] = "tracks stand for slots: the lowest free one is used"
    return found
