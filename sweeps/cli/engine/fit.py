"""``lagsweep engine fit``: an engine fitted to a request log, with intervals and errors on others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ....kernels.errors import NO_VALUE, ConfigError, Finding
from ...json_text import json_document
from ..outputs import command_again, force_option, free_outputs, named_after, output_option
from .options import reading, reading_options
from .samples import fit_samples

_WHOLE = click.IntRange(min=1)


@click.command(
    name="fit",
    epilog="Names of models: lagsweep ledger models; of accelerators: lagsweep engine cards. "
    "Exit codes: 0 done, 1 samples that tell no step, 2 usage.",
)
@click.argument("requests", type=click.Path(path_type=Path), metavar="[REQUESTS]", required=False)
@click.option(
    "--samples", type=click.Path(path_type=Path), metavar="FILE",
    help="Fit to an engine's own log or metrics in place of requests.",
)  # fmt: skip
@click.option("--model", help="A shipped model or a path to a config.json.")
@click.option("--accelerator", help="A shipped accelerator or a JSON file with a row of your own.")
@click.option("--tensor-parallel", type=_WHOLE, default=1, show_default=True, help="Cards of one engine.")
@click.option("--engines", type=_WHOLE, default=1, show_default=True, help="Engines behind the requests.")
@click.option("--expert-parallel", is_flag=True, help="Experts are spread over the engines.")
@click.option("--engine-format", default="bf16", show_default=True, help="bf16, fp8 or mxfp4-experts.")
@click.option("--cache-format", default="bf16", show_default=True, help="bf16 or fp8.")
@click.option(
    "--kv-cache-tokens", metavar="TOKENS|none",
    help="What an engine holds, as it printed; by the card's memory if left out.",
)  # fmt: skip
@click.option("--max-running", type=_WHOLE, help="Most sequences at once on an engine.")
@click.option("--routing", type=click.Choice(["least_loaded", "round_robin"]), default="least_loaded")
@click.option("--all-at-once", is_flag=True, help="There are no arrivals: all requests came together.")
@click.option("--stages", is_flag=True, help="Rows are load stages: rollouts at once, time of a token.")
@click.option(
    "--held-every", type=click.IntRange(min=0), default=2, show_default=True,
    help="Hold out every so-manieth request; 0 holds none.",
)  # fmt: skip
@output_option("--output", "-o", help="The engine; FILE-engine.toml, by what it is fitted to, if left out.")
@output_option("--page", help="Also write an offline page.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@reading_options
@click.pass_context
def command(context: click.Context, requests: Path | None, **options: Any) -> int:
    """Fit an engine to REQUESTS, or to its own samples, and write it to a file.

    REQUESTS is a log: CSV, JSON lines or parquet, plain or with .gz, a row a request, with its arrival, its
    tokens and what was measured. All requests are simulated; every second one is held out, and the errors
    on those are shown. What is fitted are shares of the card's figures, which cannot be just anything; what
    the data do not tell is said.

    With --samples FILE it is the length of a step that is fitted, to what vLLM or SGLang print or export of
    themselves: requests running, tokens in the cache, tokens a second. No model or card is needed. Samples
    that do not tell a step are refused with the reason (exit code 1).
    """
    if options["samples"] is not None:
        return fit_samples(context, requests, options)
    if requests is None:
        way_out = "Name a log of requests, or an engine's own log: --samples FILE."
        raise ConfigError("REQUESTS", "is required", NO_VALUE, way_out)
    from ...engines.engine_files import engine_toml
    from ...engines.report import fit_facts
    from ...engines.text import fit_text
    from ...files import write_atomically
    from ...frame_files import checked_folder
    from ...pages.engine import checked_engine_page, write_engine_page

    target = checked_folder(options["output"] or named_after(requests, "-engine.toml"), "--output")
    page = None if options["page"] is None else checked_engine_page(options["page"])
    if page is not None and options["stages"]:
        raise ConfigError("--page", "needs requests, not load stages", str(page), "Leave it out.")
    found = _fitted(requests, options)
    toml = engine_toml(found, target.name)
    write_atomically(target, toml.encode("utf-8"))
    written = [str(target)]
    if page is not None:
        write_engine_page(
            page, found.engine, found.requests, found.result, fit=found, toml=toml, line=command_again()
        )
        written.append(str(page))
    if options["as_json"]:
        click.echo(json_document("engine-fit", {**fit_facts(found), "written": written}))
    else:
        click.echo(fit_text(found, f"written: {', '.join(written)}"))
    return 0


def _fitted(requests: Path, options: dict[str, Any]) -> Any:
    """Read the file and fit an engine to it."""
    from ...engines.fit import fit_engine
    from ...engines.requests import read_requests
    from ...engines.roofline import deployment_of
    from ...engines.stages import read_stages

    lists = {"model": "lagsweep ledger models", "accelerator": "lagsweep engine cards"}
    missing = [
        Finding(f"--{name}", "is required", way_out=f"{known} lists those that are shipped.")
        for name, known in lists.items()
        if options[name] is None
    ]
    if missing:
        raise ConfigError(*missing)
    how = reading(options)
    at_once = options["all_at_once"]
    stages = options["stages"]
    measured = read_stages(requests, **how) if stages else read_requests(requests, all_at_once=at_once, **how)
    names = (
        "model", "accelerator", "tensor_parallel", "engines", "expert_parallel", "engine_format",
        "cache_format",
    )  # fmt: skip
    deployed = {name: options[name] for name in names}
    deployment_of(**deployed)  # refuses what cannot be
    rest = {name: options[name] for name in ("max_running", "routing", "held_every")}
    tokens = tokens_of(options["kv_cache_tokens"])
    free_outputs()
    return fit_engine(measured, kv_cache_tokens=tokens, **deployed, **rest)


def tokens_of(text: str | None) -> int | str | None:
    """Read a number of tokens, or "none"."""
    if text is None or text == "none":
        return text
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        rule = "must be a whole number, or none"
        raise ConfigError("--kv-cache-tokens", rule, text, "Give what the engine printed.") from None
