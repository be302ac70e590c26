"""``lagsweep run``: a sweep from a spec file, flags or both, into a store that survives anything."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from ...kernels.errors import ConfigError
from ..json_text import json_document
from .config_flags import (
    axes_from_flags,
    changes_from_flags,
    config_options,
    preset_from_flags,
)
from .custom_argument import custom_option, read_custom
from .failures import Stopped
from .option_groups import GroupedCommand, Themes
from .parts_table import print_parts
from .shared import INTERRUPTED_NOTE, executor_of, print_result, program, this_command
from .spec_arguments import spec_from_arguments


class _RunCommand(GroupedCommand):
    themes: ClassVar[Themes] = {
        "What is swept": (
            "axis", "preset", "knobs", "seeds", "where", "until", "refine", "baseline", "windows", "custom",
        ),
        "What is kept, and where": ("name", "results", "store", "tables", "masks"),
        "How it runs": ("threads", "executor", "dask", "task", "runs_per_unit", "dry_run"),
        "Going on with a store": ("retry_failed", "fail_fast", "rerun"),
        "Output": ("as_json", "quiet", "help"),
    }  # fmt: skip


@click.command(
    cls=_RunCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 some runs failed, 2 usage, 3 cannot resume, 130/143 interrupted.",
)
@click.argument("spec", required=False, metavar="[SPEC]")
@click.option(
    "--axis",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values of an axis: 0,1,2,4 or 1..4 or 1..1000/4/log.",
)
@click.option("--preset", metavar="NAME", help="Start from the rules of a real system (lagsweep presets).")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob of the preset.")
@click.option("--seeds", metavar="SEEDS", help="How many seeds, or a list 0,5,9, or a range 100..149.")
@click.option(
    "--where",
    multiple=True,
    metavar="RULE",
    help="Keep cells that fulfil it, as 'queue_cap >= batch_tokens'.",
)
@click.option("--name", metavar="TEXT", help="Name of the result.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    help="Where results lie.",
    show_default=True,
)
@click.option(
    "--store", type=click.Path(path_type=Path), help="The folder of this result; a larger spec extends it."
)
@click.option("--baseline/--no-baseline", default=None, help="Run the sequential pipeline beside the cells.")
@click.option("--tables", metavar="LIST", help="Long tables to keep: batches,timeline,rollouts.")
@click.option(
    "--masks", is_flag=True, default=None, help="Keep completed, trained and truncated masks of rollouts."
)
@click.option("--until", metavar="RULE", help="Add seeds only while needed: 'METRIC within 1%'.")
@click.option(
    "--windows", type=click.IntRange(min=1), metavar="N", help="Report by windows of N updates too."
)
@click.option(
    "--refine",
    type=click.IntRange(min=1),
    metavar="N",
    help="Then add N values of axes where the frontier bends.",
)
@click.option("--threads", type=int, help="Threads; one for each CPU when left out.")
@click.option(
    "--executor",
    type=click.Choice(["threads", "serial"]),
    default="threads",
    help="Where runs are done.",
    show_default=True,
)
@click.option("--dask", metavar="ADDRESS|local", help="Run on a Dask cluster.")
@click.option("--runs-per-unit", type=click.IntRange(min=1), help="Runs of a unit of work, for a new store.")
@click.option("--task", metavar="K/N", help="Run the share of task K of N into a part of its own; see merge.")
@custom_option
@click.option("--retry-failed", is_flag=True, help="Run failed runs again.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option("--rerun", is_flag=True, help="Undo all that is stored, and run it again.")
@click.option(
    "--dry-run", is_flag=True, help="Say what would be done, how large and how long; write nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@config_options
def command(spec: str | None, **options: Any) -> int:
    """Run a sweep: every combination of the axes' values, at every seed.

    SPEC is a TOML file, or the name of a shipped example (aime-cap-lag-cadence). Flags take the place of
    what it says. The result lies in results/NAME-FINGERPRINT; the same command goes on where an interrupted
    one was.
    """
    sweep = spec_from_arguments(
        spec,
        base_changes=changes_from_flags(options) | preset_from_flags(options["preset"], options["knobs"]),
        axis_changes=axes_from_flags(options["axis"]),
        options=options,
    )
    from ..store.store import store_folder

    custom = read_custom(options["custom"])
    if custom is not None:
        from ..custom.custom import remember

        sweep = sweep.replace(custom=remember(custom))
    task = None
    if options["task"] is not None:
        from ..store.tasks import read_task

        _refuse_beside_task(options)
        task = read_task(options["task"])
    folder = options["store"] or store_folder(sweep, options["results"])
    if options["dry_run"]:
        from ..sweep.dry_run import dry_run_report

        threads = _threads_of(options)
        report = dry_run_report(sweep, folder, options["runs_per_unit"], threads=threads)
        click.echo(json_document("dry-run", report.facts) if options["as_json"] else report.text)
        return 0
    return _run(sweep, folder, options, task)


def _refuse_beside_task(options: dict[str, Any]) -> None:
    ways_out = {
        "refine": "Merge first, then give --refine.",
        "dry_run": "Leave --task out: it tells of all tasks together.",
    }
    for name, way_out in ways_out.items():
        if options[name]:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError("--task", f"cannot be given with {flag}", options["task"], way_out)


def _threads_of(options: dict[str, Any]) -> int | None:
    return 1 if options["executor"] == "serial" else options["threads"]


def _name_cost(sweep: Any, folder: Path, options: dict[str, Any], progress: Any) -> None:
    """Say what a long or large run will take, before it starts: on threads of this machine alone."""
    if options["quiet"] or options["dask"] or options["rerun"] or sweep.custom is not None:
        return
    from ..sweep.dry_run import named_beforehand

    threads, unit_runs = _threads_of(options), options["runs_per_unit"]
    cost = named_beforehand(sweep, folder, unit_runs, threads=threads, progress=progress)
    if cost:
        progress.note(cost)


def _run(sweep: Any, folder: Path, options: dict[str, Any], task: Any) -> int:
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..store.folder_content import content_of_folder
    from ..store.writing import StopAtFailure, run_into_store
    from ..sweep.refine import run_refined
    from .signals import stop_at_safe_point

    progress = progress_for_terminal(quiet=options["quiet"])
    with stop_at_safe_point() as stop:
        try:
            progress.note(f"store: {folder}" if task is None else f"part {task.name} of store: {folder}")
            if task is None:
                _name_cost(sweep, folder, options, progress)
            # Rules of Python hold a lock that threads share, so each thread gets a process.
            name = "processes" if sweep.custom and options["executor"] == "threads" else options["executor"]
            with executor_of(name, options["dask"], options["threads"]) as executor:
                run = partial(
                    run_into_store,
                    folder=folder,
                    executor=executor,
                    threads=options["threads"],
                    progress=progress,
                    cancel=stop.event,
                    unit_runs=options["runs_per_unit"],
                    retry_failed=options["retry_failed"],
                    fail_fast=options["fail_fast"],
                    task=task,
                )
                if options["refine"]:
                    first = partial(run, rerun=True) if options["rerun"] else run
                    dataset = run_refined(sweep, options["refine"], first, run, progress.note)
                else:
                    dataset = run(sweep, rerun=options["rerun"])
        except Cancelled:
            if not stop.signal:
                raise
            raise Stopped(f"{INTERRUPTED_NOTE}\n  {this_command()}", stop.exit_code) from None
        except StopAtFailure:
            note = f"a run failed; what is finished is kept. To go on:\n  {this_command()}"
            raise Stopped(note, 1) from None
    if task is not None:
        return print_parts(folder, as_json=options["as_json"], only=task.name)
    content = content_of_folder(folder) if options["as_json"] else ""
    code = print_result(dataset, folder, as_json=options["as_json"], content=content)
    progress.note(f"store: {folder}\nto look at it: {shlex.join([program(), 'report', str(folder)])}")
    return code
