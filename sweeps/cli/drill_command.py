"""``lagsweep drill``: crash a small loop, resume it rightly and wrongly; what failures cost your run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...kernels.errors import NO_VALUE, ConfigError, many
from ..json_text import json_document

if TYPE_CHECKING:
    from ..checkpoint.drill import RecoveryDrill, ResumeReport
    from ..checkpoint.scope_losses import ScopeLoss

_ABOVE_0, _FROM_0 = click.FloatRange(min=0, min_open=True), click.FloatRange(min=0)
# Fields of a run that flags change; without a run there is nothing to change.
_OF_A_RUN = (
    "trainer_mtbf_seconds", "checkpoint_every_updates", "duration_seconds", "restart_seconds",
    "checkpoint_seconds",
)  # fmt: skip


EPILOG = """
\b
Examples:
  lagsweep drill
  lagsweep drill --config pipeline.toml
  lagsweep drill --preset areal --trainer-mtbf-seconds 11135
"""


@click.command(name="drill", epilog=EPILOG)
@click.option(
    "--config",
    "spec",
    metavar="SPEC",
    help="A TOML file, or a shipped example: say what each scope of checkpoints loses in such a run, of a "
    "sweep in its first configuration.",
)
@click.option("--preset", metavar="NAME", help="The same, from the rules of a real system.")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob of the preset.")
@click.option(
    "--trainer-mtbf-seconds", type=_ABOVE_0, help="Mean time between failures, in place of the run's."
)
@click.option(
    "--checkpoint-every-updates", type=click.IntRange(min=1), help="Cadence, in place of the run's."
)
@click.option(
    "--duration-seconds",
    type=_ABOVE_0,
    help="Simulated horizon, in place of the run's. Where neither is given, some eight failures long.",
)
@click.option(
    "--restart-seconds", type=_FROM_0, help="From a failure until the trainer works, in place of the run's."
)
@click.option("--checkpoint-seconds", type=_FROM_0, help="Of a checkpoint, in place of the run's.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=8, show_default=True, help="Runs with each scope."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=12016, show_default=True, help="Of the small loop."
)
@click.option(
    "--before", type=click.IntRange(min=1), default=8, show_default=True, help="Updates before the crash."
)
@click.option("--after", type=click.IntRange(min=1), default=8, show_default=True, help="Updates after it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(seed: int, before: int, after: int, as_json: bool, **run: Any) -> int:
    """Break and resume a run in several ways.

    A small asynchronous training loop is checkpointed, crashed, and resumed from everything and in six
    ways that leave something out. Exit code 0: the whole resume is exact and every wrong one is noticed.

    With --config or --preset it says instead what full and weights_only checkpoints lose at each failure
    of the trainer in a run of yours, simulated at many seeds.
    """
    if run["spec"] is not None or run["preset"] is not None:
        return _losses(run, as_json)
    given = [name for name in (*_OF_A_RUN, "knobs") if run[name] not in (None, ())]
    if given:
        flag = "--knob" if given[0] == "knobs" else f"--{given[0].replace('_', '-')}"
        raise ConfigError(flag, "needs a run", NO_VALUE, "Give --config SPEC or --preset NAME too.")
    from ..checkpoint.drill import recovery_drill

    drill = recovery_drill(seed=seed, before=before, after=after)
    if as_json:
        click.echo(json_document("drill", _document(drill, seed, before, after), indent=1))
    else:
        _print_table(drill, seed, before, after)
    return 0 if drill.all_caught else 1


def _losses(run: dict[str, Any], as_json: bool) -> int:
    """Say what each scope of checkpoints loses in a run like the one given."""
    from ..checkpoint.scope_losses import failing, loss_facts, scope_losses
    from .config_flags import preset_from_flags
    from .spec_arguments import spec_from_arguments

    changes = preset_from_flags(run["preset"], run["knobs"])
    flags = ("seeds", "where", "tables", "name", "baseline", "masks", "until", "windows")
    nothing = dict.fromkeys(flags)
    spec = spec_from_arguments(run["spec"], base_changes=changes, axis_changes={}, options=nothing)
    given = {name: run[name] for name in _OF_A_RUN if run[name] is not None}
    config, assumed = failing(spec.config(0), **given)
    losses = scope_losses(config, run["seeds"])
    if as_json:
        facts = {
            "seeds": run["seeds"],
            **{name: getattr(config, name) for name in _OF_A_RUN},
            "assumed": list(assumed),
            "scopes": [loss_facts(one) for one in losses],
        }
        click.echo(json_document("drill-losses", facts, indent=1))
    else:
        _print_losses(config, assumed, losses, run["seeds"])
    return 0


def _print_losses(config: Any, assumed: tuple[str, ...], losses: tuple[ScopeLoss, ...], seeds: int) -> None:
    from ..results.numbers import digits_for, missing, percent_interval, with_half_width
    from ..results.text import grid, wrapped

    rows = [("failures, all runs", [f"{one.failures:,}" for one in losses])]
    shown = {
        "updates lost, each time": [one.per_failure["lost_updates"] for one in losses],
        "tokens lost, each time": [one.per_failure["lost_tokens"] for one in losses],
        "prompts trained again": [one.per_failure["repeated_prompts"] for one in losses],
        "trained tokens/s": [one.trained_tokens_per_second for one in losses],
        "goodput": [one.goodput_fraction for one in losses],
    }
    for title, pairs in shown.items():
        digits = digits_for([mean for mean, _ in pairs], [half for _, half in pairs])
        rows.append((title, [with_half_width(mean, half, digits) for mean, half in pairs]))
    saved = f"a checkpoint of {config.checkpoint_seconds:g} s every {config.checkpoint_every_updates} updates"
    click.echo(
        wrapped(
            f"The trainer fails every {config.trainer_mtbf_seconds:,.6g} s on average and restarts in "
            f"{config.restart_seconds:g} s; {saved}; {many(seeds, 'run')} of {config.duration_seconds:,.6g} "
            "s with each scope, at the same seeds."
        )
    )
    if assumed:
        click.echo(wrapped(f"Assumed, since the run does not say it: {', '.join(assumed)}."))
    click.echo(
        grid(["", *(one.scope for one in losses)], [[title, *cells] for title, cells in rows], left=[0])
    )
    mean, half = losses[-1].against_full
    interval = percent_interval(mean, mean - half, mean + half)
    told = missing(half) or abs(mean) > half
    verdict = "" if told else ": not to be told apart"
    click.echo(
        wrapped(
            f"weights_only against full, paired by seed: {interval} trained tokens/s{verdict}. full goes on "
            "with the queue as it was saved; weights_only has an empty one, and draws new prompts. Prompts "
            "trained again: groups that lost updates had trained. What engines take to reload is left out."
        )
    )


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
        wrapped(
            f"Crash after {many(before, 'update')}, {after} more after the resume, seed {seed}.", width=width
        )
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
