"""What one run reports, as a table: every metric by name, its unit, bars for shares where there is room."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...kernels.pipeline.metrics import METRIC_BY_NAME
from ..json_text import plain_data
from .drift_words import drift_words
from .numbers import missing
from .text import WIDTH, aligned, bar, terminal_width, wrapped
from .words import cut_note

if TYPE_CHECKING:
    from ..runs.result import PipelineResult

_GROUPS: dict[str, tuple[str, ...]] = {
    "Throughput": (
        "trained_tokens_per_second", "effective_tokens_per_second", "seconds_per_update", "updates",
        "final_version", "syncs", "seconds_since_last_update",
    ),
    "Freshness": (
        "mean_lag", "max_lag_observed", "mean_expected_normalized_ess", "mean_normalized_ess",
        "min_normalized_ess",
    ),
    "Where time goes": (
        "trainer_utilization", "trainer_wait_seconds", "rollout_utilization", "idle_slot_seconds",
        "backpressure_seconds",
    ),
    "Tokens and rollouts": (
        "generated_tokens", "trained_tokens", "discarded_tokens", "queued_tokens", "in_training_tokens",
        "generated_rollouts", "trained_rollouts", "discarded_rollouts", "mean_queue_tokens",
        "max_queue_tokens_observed",
    ),
}  # fmt: skip
_METRIC, _METRIC_WORDS = (30, 13, 11, 18), (0, 2, 3)  # name, value, unit, bar; those at the left
_NARROW_METRIC = (30, 12, 12)  # name, value, unit: 60 columns
_LAG, _LAG_WORDS = (10, 10, 6, 40), (3,)
_LEAST_BAR = 4
_MOST_LAGS = 12


def run_text(result: PipelineResult) -> str:
    """Write what a run reports.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import PipelineConfig
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> print(run_text(simulate_pipeline(PipelineConfig(duration_seconds=600))).splitlines()[0])
    bounded_async, seed 0, 600 s simulated
    """
    lines = [_headline(result)]
    metrics = dict(result.metrics)
    metrics.pop("stalled")
    for title, names in _GROUPS.items():
        lines += ["", title, *(_row(name, metrics.pop(name)) for name in names)]
    lines += _causes(metrics, "slots_", "Slots by cause")
    lines += _causes(metrics, "trainer_", "Trainer by cause")
    rest = {name: value for name, value in metrics.items() if not _is_nothing(value)}
    if rest:
        lines += ["", "Groups and versions", *(_row(name, value) for name, value in rest.items())]
    lines += _lags(result)
    lines += ["", *_notes(result)]
    return "\n".join(lines)


def _headline(result: PipelineResult) -> str:
    config = result.config
    warmup = f", {config.warmup_seconds:g} s of them warm-up" if config.warmup_seconds else ""
    return f"{config.mode}, seed {config.seed}, {config.duration_seconds:g} s simulated{warmup}"


def _row(name: str, value: Any, share: float | None = None) -> str:
    units = METRIC_BY_NAME[name].units
    is_share = units == "1" and isinstance(value, float)
    widths = _metric_widths()
    drawn = bar(value if is_share else math.nan if share is None else share, widths[3])
    shown = "" if units == "1" else units
    return f"  {aligned([name, _value(value), shown, drawn], widths, _METRIC_WORDS)}"


def _metric_widths() -> tuple[int, ...]:
    """Return the widths of name, value, unit and bar; the bar's is 0 where there is no room for it."""
    spare = terminal_width() - WIDTH
    if spare == 0:
        return _METRIC
    room = _METRIC[3] + spare
    return (*_NARROW_METRIC, room if room >= _LEAST_BAR else 0)


def _value(value: Any) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            return "-"
        return f"{value:,.4f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}"


def _causes(metrics: dict[str, Any], prefix: str, title: str) -> list[str]:
    """Take the metrics of one breakdown out of what is left, and draw their shares."""
    names = [name for name in metrics if name.startswith(prefix)]
    values = {name: metrics.pop(name) for name in names}
    total = sum(values.values())
    if not total:
        return []
    return ["", title, *(_row(name, value, value / total) for name, value in values.items() if value)]


def _is_nothing(value: Any) -> bool:
    return not value or missing(value)


def _lags(result: PipelineResult) -> list[str]:
    counts = result.lag_counts
    total = int(counts.sum())
    if not total:
        return []
    lines = ["", "Trained rollouts by lag"]
    length = max(_LEAST_BAR, _LAG[3] + terminal_width() - WIDTH)
    used = [lag for lag in range(len(counts)) if counts[lag]]
    for lag in used[:_MOST_LAGS]:
        name = "64 or more" if lag == len(counts) - 1 else str(lag)
        share = counts[lag] / total
        cells = [name, f"{counts[lag]:,}", f"{share:.1%}", bar(share, length)]
        lines.append(f"  {aligned(cells, _LAG, _LAG_WORDS)}")
    if len(used) > _MOST_LAGS:
        rest = sum(int(counts[lag]) for lag in used[_MOST_LAGS:])
        lines.append(f"  {aligned(['more', f'{rest:,}', f'{rest / total:.1%}'], _LAG)}")
    return lines


def _notes(result: PipelineResult) -> list[str]:
    from ..runs.diagnosis import explain_stall, too_short_for_an_update
    from ..runs.engine_remarks import engine_remarks

    config = result.config
    halt = explain_stall(config, result)
    notes = [halt[0].upper() + halt[1:]] if halt else []
    if not result.metrics["updates"]:
        short = too_short_for_an_update(config)
        why = f": {short}" if short else ", so there is nothing to average"
        notes.append(f"No update completed in the measured time{why}.")
    if not halt:
        notes += [f"Engines: {remark}." for remark in engine_remarks(config, result.metrics)]
    cut = cut_note(config.response_length)
    if cut:
        notes.append(f"{cut}.")
    rests_on = "assumes" if config.drift is None else "is at"
    notes.append(
        f"ESS {rests_on} {drift_words(config)}; small batches flatter normalized_ess, not the expected one."
    )
    if config.is_level_1 and config.mode == "bounded_async":
        notes.append("The lag limit is enforced by discarding only.")
    if config.mode == "sequential":
        notes.append("sequential is a disaggregated baseline: GPUs wait, they do not change sides.")
    if not _metric_widths()[3]:
        notes.append("Bars of shares are left out: they need 66 columns.")
    return [wrapped(note) for note in notes]


def run_facts(result: PipelineResult) -> dict[str, Any]:
    """Return what a run reports as plain data for JSON: None where there is nothing to average."""
    counts = result.lag_counts.tolist()
    return {
        "config": result.config.to_dict(full=True),
        "metrics": plain_data(result.metrics),
        "lag_counts": counts,
        **_details(result),
    }


def _details(result: PipelineResult) -> dict[str, Any]:
    """Return what a run of the general loop reports on top."""
    found: dict[str, Any] = {}
    for name in ("slot_ticks", "trainer_ticks"):
        ticks: Mapping[str, int] | None = getattr(result, "__dict__", {}).get(name)
        if ticks is not None:
            found[name.replace("_ticks", "_seconds_by_cause")] = {
                cause: count / 1e6 for cause, count in ticks.items()
            }
    return found
