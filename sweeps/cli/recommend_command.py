"""``lagsweep recommend``: the best configuration of a stored sweep under constraints, and how sure."""

from __future__ import annotations

from pathlib import Path

import click

from ..json_text import json_document
from .store_argument import store_argument


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 there is a choice, 1 no configuration keeps the bounds, 2 usage, 3 no such store.",
)
@store_argument()
@click.option("--maximize", metavar="METRIC", help="trained_tokens_per_second if left out.")
@click.option("--minimize", metavar="METRIC", help="Instead, as seconds_per_update.")
@click.option("--min-ess", type=float, help="Least mean expected normalized ESS, 0 to 1.")
@click.option("--max-lag", type=int, help="Largest lag of any trained rollout, in versions.")
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="AXIS",
    help="An axis that nobody chooses; response_length, drift_per_version and drift are ones anyway.",
)  # fmt: skip
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of all comparisons together."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    store: Path,
    maximize: str | None,
    minimize: str | None,
    min_ess: float | None,
    max_lag: int | None,
    scenarios: tuple[str, ...],
    confidence: float,
    as_json: bool,
) -> int:
    """Choose a configuration of a stored sweep under constraints.

    STORE is the sweep's folder, or its name's beginning.
    Says what cannot be told apart from the choice, what the bounds cost, and
    which command would settle what the store cannot.
    """
    from ..recommend.recommend import recommend
    from ..results.scenarios import scenario_axes
    from ..store.store import open_sweep

    dataset = open_sweep(store)
    result = recommend(
        dataset,
        maximize=maximize,
        minimize=minimize,
        min_ess=min_ess,
        max_lag=max_lag,
        scenarios=[*scenario_axes(dataset, None), *scenarios] if scenarios else None,
        confidence=confidence,
        store=store,
    )
    click.echo(json_document("recommend", result.to_dict()) if as_json else str(result))
    return 0 if result.cell is not None else 1
