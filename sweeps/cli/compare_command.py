"""``lagsweep compare``: several systems' rules on the same rollouts, side by side."""

from __future__ import annotations

import json
from typing import Any

import click

from lagsweep.sweeps.cli.config_flags import config_options


@click.command("compare")
@click.argument("systems", nargs=-1, metavar="PRESET PRESET...")
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(1), help="Seeds 0 … n-1.")
@click.option(
    "--knob",
    "knobs",
    multiple=True,
    metavar="PRESET.NAME=VALUE",
    help="Set a system's own knob; may be repeated.",
)
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads; default: one per CPU.")
@click.option("--report", "page", type=click.Path(dir_okay=False), default=None, help="Write an HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_options
def command(
    systems: tuple[str, ...],
    seeds: int,
    knobs: tuple[str, ...],
    threads: int | None,
    page: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run several presets on the same workload and the same rollouts, and print them side by side.

    Differences are paired by seed and taken against the first system. Fields of the pipeline given as flags
    are the workload of all. `lagsweep presets` lists the systems.
    """
    from lagsweep.sweeps.cli.config_flags import changes_from_flags
    from lagsweep.sweeps.compare import compare_systems, comparison_rows, systems_from_names
    from lagsweep.sweeps.compare_table import comparison_text

    workload = changes_from_flags(flags)
    configs = systems_from_names(systems, workload, _read_knobs(knobs))
    click.echo(f"{len(configs)} systems × {seeds} seeds …", err=True)
    ds = compare_systems(configs, seeds, threads=threads)
    rows = comparison_rows(ds)
    if page is not None:
        from lagsweep.sweeps.compare_page import write_comparison_page

        write_comparison_page(ds, rows, configs, page)
        click.echo(f"page written to {page}", err=True)
    if as_json:
        click.echo(json.dumps([_finite(row) for row in rows], indent=1))
    else:
        click.echo(comparison_text(rows, ds.attrs["drift_per_version"]))


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and value != value else value for key, value in row.items()}


def _read_knobs(texts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    from lagsweep.errors import ConfigError, message
    from lagsweep.sweeps.cli.config_flags import read_scalar

    knobs: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        system, dot, knob = name.strip().partition(".")
        if not (equals and dot and knob):
            way_out = "Write --knob areal.max_head_offpolicyness=4."
            raise ConfigError(message("--knob", "must read PRESET.NAME=VALUE", text, way_out))
        parsed = read_scalar(value.strip())
        knobs.setdefault(system, {})[knob] = None if parsed == "none" else parsed
    return knobs
