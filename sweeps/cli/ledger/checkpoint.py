"""``lagsweep ledger checkpoint``: how often to save, by rule, and what it costs."""

from __future__ import annotations

from typing import Any

import click

from ...json_text import json_document

_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_NAMES = {
    "young": "Young (default)",
    "daly_first": "Daly, first order",
    "daly_higher": "Daly, higher order",
    "exact": "exact optimum",
    "availability": "best availability",
}


@click.command(name="checkpoint")
@click.option("--checkpoint-seconds", type=_ABOVE_0, required=True, help="A save stops the work this long.")
@click.option("--mtbf-seconds", type=_ABOVE_0, required=True, help="Mean time between failures of the job.")
@click.option("--restart-seconds", type=click.FloatRange(min=0), default=0.0, show_default=True)
@click.option("--interval-seconds", type=_ABOVE_0, help="Also show this interval of yours.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(
    checkpoint_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float,
    interval_seconds: float | None,
    as_json: bool,
) -> None:
    """Checkpoint intervals and what they cost.

    An interval is the work between two saves; overheads are exact for exponential failures.
    """
    from ....kernels.recovery.interval import METHODS, checkpoint_cadence, optimal_checkpoint_interval

    costs = {
        "checkpoint_seconds": checkpoint_seconds,
        "mtbf_seconds": mtbf_seconds,
        "restart_seconds": restart_seconds,
    }
    intervals = {method: float(optimal_checkpoint_interval(**costs, method=method)) for method in METHODS}
    if interval_seconds is not None:
        intervals["given"] = interval_seconds
    rows = []
    for method, interval in intervals.items():
        if interval <= 0:
            rows.append({"rule": method, "interval_seconds": interval, "overhead": None})
            continue
        cadence = checkpoint_cadence(interval, **costs)
        rows.append(
            {
                "rule": method,
                "interval_seconds": interval,
                "saving_overhead": float(cadence.checkpoint_fraction),
                "rework_overhead": float(cadence.expected_rework_fraction),
                "overhead": float(cadence.exact_overhead),
            }
        )
    if as_json:
        click.echo(json_document("ledger-checkpoint", {**costs, "rules": rows}, indent=1))
    else:
        _print(costs, rows)


def _print(costs: dict[str, float], rows: list[dict[str, Any]]) -> None:
    from .print import print_table, say

    say(
        f"A save takes {costs['checkpoint_seconds']:g} s, a failure comes every {costs['mtbf_seconds']:g} s, "
        f"a restart takes {costs['restart_seconds']:g} s."
    )
    table = [
        (
            _NAMES.get(row["rule"], "your interval"),
            f"{row['interval_seconds']:,.1f}",
            *(
                ("-", "-", "-")
                if row["overhead"] is None
                else (
                    f"{100 * row['saving_overhead']:.3f} %",
                    f"{100 * row['rework_overhead']:.3f} %",
                    f"{100 * row['overhead']:.4f} %",
                )
            ),
        )
        for row in rows
    ]
    print_table(("Rule", "Interval s", "Saving", "Rework", "All, exact"), table)
    say("Saving and rework are to first order, per second of useful work.")
