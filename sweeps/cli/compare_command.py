"""``lagsweep compare``: several systems' rules on the same rollouts, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import click

from ..json_text import json_document
from .config_flags import config_options, written_value
from .failures import Stopped
from .option_groups import OPTION_MARK, GroupedCommand, Themes
from .outputs import force_option, free_outputs, output_option
from .shared import INTERRUPTED_NOTE, executor_of, this_command

EPILOG = """
Fields of the pipeline given as flags change the workload of all systems. Left out, it is a batch of
16 x 8 rollouts of the shipped law aime-rl-1000 on 256 slots, with a trainer about as fast as they are.

\b
Examples:
  lagsweep compare areal verl_fully_async prime_rl
  lagsweep compare areal areal:max_head_offpolicyness=4
  lagsweep compare skyrl tinker --report comparison.html
"""


class _CompareCommand(GroupedCommand):
    themes: ClassVar[Themes] = {
        "What is compared": ("seeds", "against", "baseline"),
        "What is kept, and where": ("store", "page", "force"),
        "How it runs": ("threads", "dask"),
        "Output": ("as_json", "quiet", "help"),
    }
    field_note: ClassVar[str] = (
        "Settings of the workload, for all systems. In brackets the default and its unit; without a default "
        f"the system's own rules decide. {OPTION_MARK} marks an option beyond the core."
    )

    @property
    def field_defaults(self) -> dict[str, str]:
        """What the workload says; nothing where the systems decide."""
        from ..compare.systems import DEFAULT_WORKLOAD
        from ..config.config import PipelineConfig

        return dict.fromkeys(PipelineConfig.model_fields, "") | {
            name: written_value(value) for name, value in DEFAULT_WORKLOAD.items()
        }


@click.command(
    "compare", cls=_CompareCommand, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.argument("systems", nargs=-1, metavar="PRESET[:KNOB=VALUE,...]...")
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(1), help="Seeds 0 … n-1.")
@click.option("--against", metavar="LABEL", help="Take differences against this system; default: the first.")
@click.option(
    "--baseline/--no-baseline",
    default=True,
    help="Add a synchronous loop in which every GPU generates, then trains.",
)
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads; default: one per CPU.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Keep the runs in this folder, a stored sweep over the axis system.",
)
@click.option("--dask", metavar="ADDRESS|local", help="Run on a Dask cluster.")
@output_option("--report", "page", help="Write an HTML page.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@config_options
def command(
    systems: tuple[str, ...],
    seeds: int,
    against: str | None,
    baseline: bool,
    threads: int | None,
    store: Path | None,
    dask: str | None,
    page: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Run several presets on the same workload and the same rollouts, and print them side by side.

    A preset's own knobs follow it: areal:max_head_offpolicyness=4. The same preset may come twice with
    other knobs. `lagsweep presets` lists the presets, `lagsweep presets NAME` their knobs.
    """
    from ..compare.rows import check_against, comparison_rows
    from ..compare.systems import compare_systems, compared_systems, whole_workload
    from ..compare.text import comparison_text, drift_of, workload_text
    from ..execute.progress import progress_for_terminal
    from ..presets.systems import read_system
    from ..runs.many import Cancelled
    from ..spec.engine_files import with_engine_fields
    from .config_flags import changes_from_flags
    from .signals import stop_at_safe_point

    if page is not None:
        from ..pages.comparison import NAME, checked_page

        checked_page(page, *NAME)
    changes = with_engine_fields({}, changes_from_flags(flags))
    compared = compared_systems([read_system(text) for text in systems], changes, baseline=baseline)
    if against is not None:
        check_against(against, [system.label for system in compared])  # before anything runs
    free_outputs()
    progress = progress_for_terminal(quiet=quiet)
    with stop_at_safe_point() as stop:
        try:
            with executor_of("threads", dask, threads) as executor:
                ds = compare_systems(
                    compared,
                    seeds,
                    store=store,
                    executor=executor,
                    threads=threads,
                    cancel=stop.event,
                    progress=progress,
                )
        except Cancelled:
            kept = (
                f"{INTERRUPTED_NOTE}\n  {this_command()}"
                if store
                else "stopped; nothing is kept of a comparison"
            )
            raise Stopped(kept, stop.exit_code) from None
    rows = comparison_rows(ds, against=against)
    if page is not None:
        from ..pages.comparison import write_comparison_page

        shared = workload_text(whole_workload(changes))
        write_comparison_page(ds, rows, compared, page, workload=shared, line=this_command())
        click.echo(f"page written to {page}", err=True)
    config = compared[0].config
    if as_json:
        _print_json(rows, compared, None if config.drift else config.drift_per_version)
    else:
        click.echo(comparison_text(rows, workload_text(whole_workload(changes)), drift_of(config)))
    return 0


def _print_json(rows: list[dict[str, Any]], compared: list[Any], drift: float | None) -> None:
    facts = {
        "against": rows[0]["against"],
        "seeds": rows[0]["seeds"],
        "drift_per_version": drift,
        "systems": [{**row, "config": system.config.to_dict()} for row, system in zip(rows, compared)],
    }
    click.echo(json_document("compare", facts, indent=1))
