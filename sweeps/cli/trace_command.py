"""``lagsweep trace``: one run, from flags or out of a stored sweep, as a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...kernels.errors import ConfigError
from ..json_text import json_document
from .config_flags import config_options
from .custom_argument import custom_option, read_custom
from .outputs import force_option, free_outputs, note_output, output_option
from .shared import config_from_options, tell_compiling
from .store_argument import store_argument

TABLES = ("batches", "timeline", "rollouts")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Open the file at https://ui.perfetto.dev. Exit codes: 0 done, 1 not the stored run, 2 usage.",
)
@store_argument(required=False)
@click.option("--cell", metavar="ID|AXIS=VALUE,…", help="Which cell of the store.")
@output_option(
    "--output", "-o", help="The trace, .json or .json.gz; trace-CELL-seed-SEED.json.gz if left out."
)
@click.option(
    "--max-events", type=click.IntRange(min=1), help="Refuse a larger trace; 1,000,000 if left out."
)
@click.option("--from-seconds", type=float, help="Leave out what ends before.")
@click.option("--to-seconds", type=float, help="Leave out what starts after.")
@output_option("--batches", help="Write a row per update.")
@output_option("--timeline", help="Write a row per event.")
@output_option("--rollouts", help="Write a row per rollout.")
@force_option
@custom_option
@click.option("--preset", metavar="NAME", help="Start from the rules of a real system (lagsweep presets).")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr.")
@config_options
def command(store: Path | None, **options: Any) -> int:
    """Write one run as a Chrome trace for Perfetto.

    With STORE: the run of --cell at --seed, run again and held against what is stored. Without: the run that
    the flags describe. Tables beside it are parquet or CSV, by their suffix.
    """
    from ..frame_files import checked_table_path, write_frame
    from ..trace.trace import MOST_EVENTS, checked_trace_path, write_trace

    most = options["max_events"] or MOST_EVENTS
    output = None if options["output"] is None else checked_trace_path(options["output"])
    files = {
        name: checked_table_path(options[name], f"--{name}") for name in TABLES if options[name] is not None
    }
    window = _window(options)
    simulate, cell, seed = _from_flags(options, most) if store is None else _from_store(store, options, most)
    if output is None:
        output = note_output(checked_trace_path(Path(f"trace-{cell}-seed-{seed}.json.gz")), "--output")
    free_outputs()
    result, about, verdict, same = simulate()
    written = write_trace(result, output, max_events=most, window_seconds=window, about=about)
    for name, path in files.items():
        write_frame(getattr(result, f"{name}_frame")(), path, config=json.dumps(result.config.to_dict()))
    facts = {
        "trace": str(written.path),
        "bytes": written.bytes,
        "events": written.events,
        "rollouts": written.rollouts,
        "steps": written.steps,
        "flows": written.flows,
        "discards": written.discards,
        **{name: str(path) for name, path in files.items()},
        **about,
        **({"replay": verdict} if verdict else {}),
    }
    click.echo(json_document("trace", facts) if options["as_json"] else _text(facts, verdict))
    return 0 if same else 1


def _text(facts: dict[str, Any], verdict: str) -> str:
    lines = [
        f"{facts['trace']}: {facts['events']:,} events, {facts['bytes'] / 1e6:.1f} MB",
        f"  {facts['rollouts']:,} rollouts, {facts['steps']:,} training steps, {facts['flows']:,} arrows",
        *(f"  {name}: {facts[name]}" for name in TABLES if isinstance(facts.get(name), str)),
        *([verdict] if verdict else []),
        "Open it at https://ui.perfetto.dev (the file stays on your machine).",
    ]
    return "\n".join(lines)


def _window(options: dict[str, Any]) -> tuple[float, float] | None:
    low, high = options["from_seconds"], options["to_seconds"]
    if low is None and high is None:
        return None
    return (0.0 if low is None else low, float("inf") if high is None else high)


# What a run gave: the result, facts about it, what its replay says, and whether it is the stored run.
_Traced = tuple[Any, dict[str, Any], str, bool]


def _from_flags(options: dict[str, Any], most: int) -> tuple[Callable[[], _Traced], int, int]:
    """Return what simulates the run of the flags, its cell and its seed."""
    from ..runs.simulate import simulate_pipeline
    from ..spec.identity import cell_id
    from ..trace.trace import check_size_before

    if options["cell"] is not None:
        raise ConfigError("--cell", "needs a store", options["cell"], "Write lagsweep trace STORE --cell ….")
    if options["custom"] is not None:
        raise ConfigError("--custom", "needs a store", options["custom"], "Use simulate_custom in Python.")
    config = config_from_options(options)
    check_size_before(config, most)

    def simulate() -> _Traced:
        tell_compiling(config, options["quiet"])
        return simulate_pipeline(config, rollouts=True), {}, "", True

    return simulate, cell_id(config), config.seed


def _from_store(store: Path, options: dict[str, Any], most: int) -> tuple[Callable[[], _Traced], int, int]:
    """Return what simulates a stored run again, its cell and its seed."""
    from ..custom.custom import remember
    from ..results.cells import cell_coordinates, find_cell
    from ..spec.carried import config_at
    from ..store.replay import refuse_older_model, replay
    from ..store.store import open_sweep
    from ..trace.trace import check_size_before
    from .cell_arguments import read_cell
    from .config_flags import changes_from_flags

    changes = changes_from_flags(options)
    seed = changes.pop("seed", None)
    if changes or options["preset"] is not None:
        name = next(iter(changes), "preset")
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(
            flag, "cannot change a stored run", changes.get(name), "Leave it out, or leave out STORE."
        )
    if options["cell"] is None:
        raise ConfigError("--cell", "must be given with a store", None, "lagsweep show lists the cells.")
    dataset = open_sweep(store)
    cell = read_cell(options["cell"])
    config = config_at(dataset, cell, seed)
    remember(read_custom(options["custom"]))
    check_size_before(config, most)
    refuse_older_model(dataset)

    def simulate() -> _Traced:
        tell_compiling(config, options["quiet"])
        again = replay(dataset, cell, seed)
        about = {
            "store": str(store),
            "fingerprint": dataset.attrs["fingerprint"],
            "cell": again.cell,
            "seed": again.seed,
        }
        return again.result, about, again.verdict(), again.same

    cells, _ = cell_coordinates(dataset)
    first = int(dataset["seed"].values[0])
    return simulate, int(cells[find_cell(dataset, cell)]), first if seed is None else config.seed
