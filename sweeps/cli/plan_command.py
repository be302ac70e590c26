"""``lagsweep plan``: a model, GPUs and a workload in; the split, engines and rules to begin with out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...kernels.errors import ConfigError
from ..json_text import json_document
from .failures import NeededOption, Stopped
from .outputs import command_again, force_option, free_outputs, output_option
from .shared import INTERRUPTED_NOTE, executor_of, this_command

EPILOG = """
Names of models: lagsweep ledger models; of accelerators: lagsweep engine cards; of laws: --law shipped:x
lists them. The runs are kept as an ordinary store: show, report and recommend work on it.

\b
Exit codes: 0 done, 1 nothing is feasible, 2 usage, 3 cannot resume, 130/143 interrupted.
"""
_FEW = click.IntRange(min=1)


@click.command("plan", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", required=True, help="A shipped model, or a path to a config.json.")
@click.option(
    "--accelerator", required=True, help="A shipped card, or a JSON or TOML file with your own row."
)
@click.option("--gpus", required=True, type=_FEW, help="All GPUs.")
@click.option("--prompts", required=True, type=_FEW, help="Prompts of an update.")
@click.option("--group-size", required=True, type=_FEW, help="Answers to each prompt.")
@click.option(
    "--law", cls=NeededOption, metavar="LAW",
    help="Lengths of answers: shipped:NAME (shipped:aime-rl-1000), or as in lagsweep run.",
)  # fmt: skip
@click.option("--prompt-tokens", required=True, type=click.IntRange(min=0), help="Tokens of a prompt.")
@click.option("--max-tokens", required=True, type=_FEW, help="Longest answer that an engine allows.")
@click.option("--rollout-gpus", metavar="LIST", help="GPUs for engines to try: 16,32,48.")
@click.option("--tensor-parallel", metavar="LIST", help="GPUs of one engine to try: 2,4.")
@click.option("--systems", metavar="LIST", help="Rules to try: colocated, or PRESET:KNOB=VALUE.")
@click.option("--max-lag", metavar="LIST", help="Lag limits to try, in updates: 1,2,4.")
@click.option("--caps", metavar="LIST", help="Most rollouts of an engine to try: 64,128,256,512.")
@click.option("--cadence", metavar="LIST", help="Updates between publications to try: 1,2.")
@click.option("--network", help="across-nodes, one-node, or a JSON or TOML file with your own row.")
@click.option("--gpus-per-node", type=_FEW, default=8, show_default=True, help="GPUs of a node.")
@click.option(
    "--forward-passes", type=click.IntRange(0, 4), default=1, show_default=True,
    help="Beside an update: 1 for old log-probabilities.",
)  # fmt: skip
@click.option(
    "--optimizer-steps", type=_FEW, default=1, show_default=True, help="Of an update: its mini-batches."
)
@click.option("--reference-model", is_flag=True, help="A reference model too: memory and a forward pass.")
@click.option("--engine-format", default="bf16", show_default=True, help="bf16, fp8 or mxfp4-experts.")
@click.option("--cache-format", default="bf16", show_default=True, help="bf16 or fp8.")
@click.option("--utilization", type=float, default=0.9, show_default=True, help="Memory that engines take.")
@click.option(
    "--drift-per-version", type=float, default=0.2, show_default=True, help="What lag costs: an assumption."
)
@click.option("--drift", metavar="LAW", help="What lag costs, from records: from_records:FILE:LEVEL.")
@click.option("--price", type=float, help="Of a GPU-hour, in any currency.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE|LOW..HIGH",
    help="A measured input in the place of its default; repeatable.",
)  # fmt: skip
@click.option("--measured", type=click.Path(path_type=Path), metavar="FILE", help="A measured engine.")
@click.option(
    "--trainer-mtbf-hours",
    type=click.FloatRange(min=0, min_open=True),
    help="Mean time between failures of the trainer: says how often to save.",
)
@click.option("--restart-seconds", type=click.FloatRange(min=0), help="After a failure; 300 if left out.")
@click.option("--checkpoint-seconds", type=click.FloatRange(min=0, min_open=True), help="Of a checkpoint.")
@click.option(
    "--storage-gb-per-second", type=click.FloatRange(min=0, min_open=True),
    help="Or the rate at which all ranks write one, of the ledger's size.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Of each cell.")
@click.option(
    "--most-simulated", type=_FEW, default=120, show_default=True, help="Cells to simulate at most."
)
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("results"), help="Where results lie."
)
@click.option("--store", type=click.Path(path_type=Path), help="The folder of this result.")
@output_option("--table", help="Write a row per cell.")
@output_option("--page", help="Write an HTML page.")
@force_option
@click.option("--threads", type=_FEW, help="Threads; one for each CPU when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(**options: Any) -> int:
    """Plan a run from a model, an accelerator and a workload.

    Every split of the GPUs is tried with every size of engine, rule, cap and cadence. What cannot be says by
    how much; the rest is bounded, and simulated where the bound is near the best. Figures come with the
    range that data sheets leave, and with the input that is worth measuring first.
    """
    from ..execute.progress import progress_for_terminal
    from ..frame_files import checked_table_path, write_frame
    from ..pages.plan import checked_plan_page, write_plan_page
    from ..plan.plan import answer
    from ..runs.many import Cancelled
    from .signals import stop_at_safe_point

    table = None if options["table"] is None else checked_table_path(options["table"], "--table")
    page = None if options["page"] is None else checked_plan_page(options["page"])
    asked = _asked(options)
    free_outputs()
    progress = progress_for_terminal(quiet=options["quiet"])
    with stop_at_safe_point() as stop:
        try:
            with executor_of("threads", None, options["threads"]) as executor:
                found = answer(
                    asked,
                    seeds=options["seeds"],
                    most_simulated=options["most_simulated"],
                    store=options["store"],
                    results=options["results"],
                    executor=executor,
                    threads=options["threads"],
                    progress=progress,
                    cancel=stop.event,
                )
        except Cancelled:
            raise Stopped(f"{INTERRUPTED_NOTE}\n  {this_command()}", stop.exit_code) from None
    if table is not None:
        write_frame(found.table, table)
    if page is not None:
        write_plan_page(page, found, line=command_again() if table else this_command())
    click.echo(json_document("plan", found.to_dict()) if options["as_json"] else str(found))
    if found.folder is not None:
        progress.note(f"store: {found.folder}")
    return 0 if found.best is not None else 1


def _asked(options: dict[str, Any]) -> Any:
    """Read the question from the flags."""
    from ..plan.question import ask
    from ..presets.systems import split_labels
    from .config_flags import read_text

    law = options["law"]
    given = read_text("response_length", law, "--law") if law is not None else None
    try:
        return ask(
            **{name: options[name] for name in _SAME},
            law=_law(given),
            drift=_drift(options["drift"]),
            rollout_gpus=_numbers("--rollout-gpus", options["rollout_gpus"]),
            tensor_parallel=_numbers("--tensor-parallel", options["tensor_parallel"]),
            systems=None if options["systems"] is None else split_labels(options["systems"]),
            max_lags=_numbers("--max-lag", options["max_lag"]),
            caps=_numbers("--caps", options["caps"]),
            cadences=_numbers("--cadence", options["cadence"]),
            inputs=_inputs(options["inputs"]),
            trainer_mtbf_seconds=_times(options["trainer_mtbf_hours"], 3600.0),
            storage_bytes_per_second=_times(options["storage_gb_per_second"], 1e9),
        )
    except ConfigError as error:
        raise ConfigError(*(one._replace(field=_flag(one.field)) for one in error.findings)) from None


_SAME = (
    "model", "accelerator", "gpus", "prompts", "group_size", "prompt_tokens", "max_tokens", "network",
    "gpus_per_node", "forward_passes", "optimizer_steps", "reference_model", "engine_format",
    "cache_format", "utilization", "drift_per_version", "price", "measured", "restart_seconds",
    "checkpoint_seconds",
)  # fmt: skip
_LISTS = ("rollout_gpus", "tensor_parallel", "systems", "caps")
_RENAMED = {
    "max_lags": "--max-lag", "cadences": "--cadence", "trainer_mtbf_seconds": "--trainer-mtbf-hours",
    "storage_bytes_per_second": "--storage-gb-per-second",
}  # fmt: skip


def _times(given: float | None, unit: float) -> float | None:
    return None if given is None else given * unit


def _law(given: Any) -> Any:
    from ..spec.axes import checked_value

    return None if given is None else checked_value("response_length", given, "--law")


def _drift(text: str | None) -> Any:
    from ..spec.axes import checked_value
    from .config_flags import read_text

    return None if text is None else checked_value("drift", read_text("drift", text, "--drift"), "--drift")


def _flag(field: str) -> str:
    """Name the flag that a finding is about."""
    if field.startswith("inputs."):
        return f"--input {field.removeprefix('inputs.')}"
    if field in (*_SAME, *_LISTS, "law", "drift"):
        return f"--{field.replace('_', '-')}"
    return _RENAMED.get(field, field)


def _numbers(flag: str, text: str | None) -> list[int] | None:
    """Read whole numbers with commas between."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        way_out = f"Write {flag} 1,2,4."
        raise ConfigError(flag, "must be whole numbers with commas between", text, way_out) from None


def _inputs(texts: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE and NAME=LOW..HIGH."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, given = text.partition("=")
        ends = given.split("..")
        try:
            numbers = [float(end) for end in ends]
        except ValueError:
            numbers = []
        if not equals or len(numbers) not in (1, 2) or name in found:
            way_out = "Write --input model_flops_utilization=0.4, or 0.3..0.45, each once."
            raise ConfigError("--input", "must read NAME=VALUE or NAME=LOW..HIGH", text, way_out)
        found[name.strip().replace("-", "_")] = numbers[0] if len(numbers) == 1 else numbers
    return found
