"""``lagsweep ledger drift``: what a logged ESS, KL or clip ratio stands for, or what records measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...json_text import json_document

_SHARE = click.FloatRange(min=0, min_open=True, max=1)
_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_LAGS = (1, 2, 4, 8)
_LOGGED = ("token_ess", "sequence_ess", "kl", "clip_fraction")


@click.command(name="drift")
@click.option("--token-ess", type=_SHARE, help="Normalized ESS of token ratios.")
@click.option("--sequence-ess", type=_SHARE, help="Normalized ESS of whole sequences' ratios.")
@click.option("--kl", type=click.FloatRange(min=0), help="KL per token, k1 or k3.")
@click.option("--clip-fraction", type=click.FloatRange(min=0, max=1, max_open=True), help="Share outside.")
@click.option("--clip-range", type=_ABOVE_0, default=0.2, show_default=True, help="Outside 1 - e ... 1 + e.")
@click.option(
    "--ess-at-lag-0", type=_SHARE, default=1.0, show_default=True, help="The same ESS on fresh data."
)
@click.option("--lag", type=_ABOVE_0, default=1.0, show_default=True, help="Versions, where it was logged.")
@click.option("--tokens", type=click.IntRange(min=1), help="Mean tokens of a response.")
@click.option(
    "--correlation",
    type=click.FloatRange(0, 1),
    help="Between the log ratios of two tokens of a response; both ends are shown when left out.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rollout records with trainer_logprobs: what they measure, lag by lag.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(
    tokens: int | None, correlation: float | None, records: Path | None, as_json: bool, **options: Any
) -> None:
    """Drift from what a trainer logs, or from rollout records.

    Give one of --token-ess, --sequence-ess, --kl, --clip-fraction, and --tokens: log ratios are then taken
    as normal, with a variance in proportion to the lag; docs/ess.md says how far that holds. Or give
    --records, which assumes nothing of the kind.
    """
    given = [name for name in _LOGGED if options[name] is not None]
    if records is not None:
        if given or tokens is not None or correlation is not None:
            raise click.UsageError("--records: stands alone, and says all of it by itself.")
        from .drift_records import print_measured_drift

        print_measured_drift(records, as_json=as_json)
        return
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _LOGGED)
        raise click.UsageError(f"{flags}: give one of them (got {len(given)}).")
    if tokens is None:
        raise click.UsageError("Missing option '--tokens'.")
    levels = _levels(given[0], tokens, correlation, options)
    facts = {
        "logged": given[0],
        "value": options[given[0]],
        "lag": options["lag"],
        "tokens": tokens,
        "correlation": correlation,
        "drift_per_version": levels,
        "normalized_ess": {name: [_ess(drift, lag) for lag in _LAGS] for name, drift in levels.items()},
        "lags": list(_LAGS),
    }
    if as_json:
        click.echo(json_document("ledger-drift", facts, indent=1))
    else:
        _print(facts)


def _levels(logged: str, tokens: int, correlation: float | None, options: dict[str, Any]) -> dict[str, float]:
    """Return the drift per version of each level: of a token, of a sequence, of the geometric mean."""
    from ....kernels.staleness.drift import (
        drift_from_clip_fraction,
        drift_from_ess,
        drift_from_kl,
        sequence_drift,
    )

    lag = options["lag"]
    ends = {"": correlation} if correlation is not None else {", apart": 0.0, ", together": 1.0}
    if logged == "sequence_ess":
        whole = float(drift_from_ess(options[logged], lag, ess_at_lag_0=options["ess_at_lag_0"]))
        factors = {name: float(sequence_drift(1.0, tokens, shared)) for name, shared in ends.items()}
        token = {f"token{name}": whole / factor for name, factor in factors.items()}
        return {**token, "sequence": whole, "geometric mean": whole / tokens}
    if logged == "token_ess":
        drift = drift_from_ess(options[logged], lag, ess_at_lag_0=options["ess_at_lag_0"])
    elif logged == "kl":
        drift = drift_from_kl(options[logged], lag)
    else:
        drift = drift_from_clip_fraction(options[logged], options["clip_range"], lag)
    own = float(drift)
    whole_of = {name: float(sequence_drift(own, tokens, shared)) for name, shared in ends.items()}
    return {
        "token": own,
        **{f"sequence{name}": value for name, value in whole_of.items()},
        **{f"geometric mean{name}": value / tokens for name, value in whole_of.items()},
    }


def _ess(drift: float, lag: int) -> float:
    from ....kernels.staleness.ess import expected_normalized_ess

    return float(expected_normalized_ess([lag], min(drift, 1e3)))


def _print(facts: dict[str, Any]) -> None:
    from .print import print_table, say

    name = facts["logged"].replace("_", " ")
    say(f"{name} {facts['value']:g} at lag {facts['lag']:g}, responses of {facts['tokens']:,} tokens.")
    rows = [
        (level, f"{drift:.3f}", *(f"{ess:.3f}" for ess in facts["normalized_ess"][level]))
        for level, drift in facts["drift_per_version"].items()
    ]
    print_table(("Ratio of a", "Drift", *(f"ESS, lag {lag}" for lag in facts["lags"])), rows)
    if facts["correlation"] is None:
        say("apart: tokens of a response move on their own; together: all of them alike. Truth lies between.")
    say("Take the level at which your trainer weighs: --drift-per-version is that one's drift.")
