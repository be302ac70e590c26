"""The best checkpoint cadence of each failure rate as a table of text, and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from .cadence import CadenceCurve, CadenceCurves
from .numbers import digits_for, fixed, with_half_width
from .text import grid, wrapped
from .words import describe_settings


def cadence_text(found: CadenceCurves) -> str:
    """Write a row for each failure rate and scope: the best cadence, and what the rules say, in updates."""
    best = [(float(one.effective[one.best]), float(one.effective_half[one.best])) for one in found.curves]
    digits = digits_for([mean for mean, _ in best], [half for _, half in best])
    lines = [
        [
            one.label.replace(", ", ",\n"),
            str(one.cadences[one.best]),
            with_half_width(*figures, digits),
            fixed(float(one.goodput[one.best]), 3),
            *(fixed(one.rules.get(rule), 1) for rule in ("young", "exact")),
            ", ".join(str(other) for other in one.alike if other != one.cadences[one.best]),
        ]
        for one, figures in zip(found.curves, best)
    ]
    header = [
        "how often to\ncheckpoint",
        "every …\nupdates",
        "effective\ntokens/s",
        "goodput",
        "Young",
        "exact",
    ]
    at = f" At {describe_settings(found.at)}." if found.at else ""
    return "\n".join(
        [
            grid([*header, "as good"], lines, left=[0]),
            wrapped(
                "every: with the most effective tokens/s of those tried; as good: not to be told from it. "
                f"Young and exact: their intervals in updates, for a trainer that never waits.{at}"
            ),
        ]
    )


def cadence_facts(found: CadenceCurves) -> list[dict[str, Any]]:
    """Return the curves as plain data for JSON."""
    return [_facts(one) for one in found.curves]


def _facts(curve: CadenceCurve) -> dict[str, Any]:
    return {
        "trainer_mtbf_seconds": curve.mtbf_seconds,
        "checkpoint_scope": curve.scope,
        "best_every_updates": int(curve.cadences[curve.best]),
        "cannot_be_told_from_best": list(curve.alike),
        "step_seconds": curve.step_seconds,
        "rules_in_updates": dict(curve.rules),
        "points": [
            {
                "cell": int(cell),
                "checkpoint_every_updates": int(every),
                "effective_tokens_per_second": float(effective),
                "effective_tokens_per_second_half_width": float(effective_half),
                "goodput_fraction": float(goodput),
                "goodput_fraction_half_width": float(goodput_half),
            }
            for cell, every, effective, effective_half, goodput, goodput_half in zip(
                curve.cells, curve.cadences, curve.effective, curve.effective_half, curve.goodput,
                curve.goodput_half,
            )
        ],
    }  # fmt: skip
