"""``lagsweep drill``: crash a small training loop, resume it rightly and wrongly, show what each changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..json_text import json_document

if TYPE_CHECKING:
    from ..checkpoint.drill import RecoveryDrill, ResumeReport


@click.command(name="drill")
@click.option(
    "--seed", type=click.IntRange(min=0), default=12016, show_default=True, help="Of the whole drill."
)
@click.option(
    "--before", type=click.IntRange(min=1), default=8, show_default=True, help="Updates before the crash."
)
@click.option("--after", type=click.IntRange(min=1), default=8, show_default=True, help="Updates after it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(seed: int, before: int, after: int, as_json: bool) -> int:
    """Break and resume a run in several ways.

    A small asynchronous training loop is checkpointed, crashed, and resumed from everything and in six
    ways that leave something out. Exit code 0: the whole resume is exact and every wrong one is noticed.
    """
    from ..checkpoint.drill import recovery_drill

    drill = recovery_drill(seed=seed, before=before, after=after)
    if as_json:
        click.echo(json_document("drill", _document(drill, seed, before, after), indent=1))
    else:
        _print_table(drill, seed, before, after)
    return 0 if drill.all_caught else 1


def _document(drill: RecoveryDrill, seed: int, before: int, after: int) -> dict[str, Any]:
    def row(report: ResumeReport) -> dict[str, Any]:
        return {
            "resume": report.name,
            "fault": report.fault,
            "differs": report.caught,
            "differs_in": list(report.caught_by),
            "first_different_update": report.first_different_update,
            "effects": list(report.effects),
            "vanished_prompts": list(report.vanished_prompts),
            "repeated_prompts": list(report.repeated_prompts),
            "stream": report.stream,
            "largest_outstanding": report.largest_outstanding,
            "weight_distance": report.weight_distance,
            "mean_reward": report.outcome.mean_reward,
        }

    return {
        "seed": seed,
        "before": before,
        "after": after,
        "exact_match": drill.exact_match,
        "broken_match": drill.broken_match,
        "all_caught": drill.all_caught,
        "uninterrupted_mean_reward": drill.uninterrupted.mean_reward,
        "right": row(drill.right),
        "broken": [row(report) for report in drill.broken],
    }


def _print_table(drill: RecoveryDrill, seed: int, before: int, after: int) -> None:
    from ..results.text import grid, terminal_width, wrapped

    width = terminal_width()
    click.echo(
        wrapped(f"Crash after {before} updates, {after} more after the resume, seed {seed}.", width=width)
    )
    lines = [["uninterrupted", "", f"{drill.uninterrupted.mean_reward:.2f}", ""]]
    for report in (drill.right, *drill.broken):
        changes = "\n".join(
            [report.fault + (":" if report.effects else ""), *("- " + e for e in report.effects)]
        )
        lines.append([report.name, _result(report), f"{report.outcome.mean_reward:.2f}", changes])
    header = ["Resume", "Result", "Reward", "What it silently changes"]
    click.echo(grid(header, lines, left=[0, 1, 3], width=width))
    click.echo(wrapped(_verdict(drill), width=width))


def _result(report: ResumeReport) -> str:
    if report.name == "right":
        return "DIFFERS" if report.caught else "exact"
    return "caught" if report.caught else "MISSED"


def _verdict(drill: RecoveryDrill) -> str:
    missed = [report.name for report in drill.broken if not report.caught]
    if not drill.exact_match:
        return f"FAILED: the right resume differs in {', '.join(drill.right.caught_by)}."
    if missed:
        return f"FAILED: not noticed: {', '.join(missed)}."
    caught = f"all {len(drill.broken)} broken ones are caught"
    return f"The right resume is exact; {caught}, though none of them raised an error."
