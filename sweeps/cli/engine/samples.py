"""``lagsweep engine fit --samples``: the length of a step fitted to what an engine says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ....kernels.errors import ConfigError, Finding
from ...json_text import json_document
from ..outputs import command_again, free_outputs, named_after
from .options import named

_USED = ("samples", "kv_cache_tokens", "output", "page", "as_json", "columns", "where")


def fit_samples(context: click.Context, requests: Path | None, options: dict[str, Any]) -> int:
    """Fit a step to samples, print it, and write the engine; 1 where the samples tell none.

    Raises
    ------
    ConfigError
        For options that belong to requests, and files that cannot be read or written.
    """
    from ...files import write_atomically
    from ...frame_files import checked_folder
    from ...logs.engine_log import read_engine_log
    from ...logs.engine_samples_fit import fit_engine_samples
    from ...logs.sampled_engine import sampled_engine_toml
    from ...logs.text import engine_samples_text
    from ...pages.engine_samples import checked_samples_page, write_samples_page

    _refuse_others(context, requests)
    target = checked_folder(options["output"] or named_after(options["samples"], "-engine.toml"), "--output")
    page = None if options["page"] is None else checked_samples_page(options["page"])
    log = read_engine_log(
        options["samples"],
        kv_cache_tokens=_pool(options["kv_cache_tokens"]),
        where=named("--where", options["where"]),
        columns=named("--column", options["columns"]),
    )
    free_outputs()
    fit = fit_engine_samples(log)
    written = []
    toml = ""
    if not fit.refusals:
        toml = sampled_engine_toml(fit, target.name)
        write_atomically(target, toml.encode("utf-8"))
        written.append(str(target))
    if page is not None:
        write_samples_page(page, fit, toml=toml, line=command_again())
        written.append(str(page))
    if options["as_json"]:
        click.echo(json_document("engine-samples", {**fit.as_dict(), "written": written}))
    else:
        words = f"written: {', '.join(written)}" if written else "written: nothing"
        click.echo(engine_samples_text(fit, words))
    return 1 if fit.refusals else 0


def _refuse_others(context: click.Context, requests: Path | None) -> None:
    """Refuse what has no effect on samples."""
    findings = []
    if requests is not None:
        way_out = "Give requests, or samples."
        findings.append(Finding("REQUESTS", "has no effect with --samples", str(requests), way_out))
    for one in context.command.params:
        given = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if isinstance(one, click.Option) and given and one.name not in _USED:
            value = context.params[one.name or ""]
            findings.append(Finding(one.opts[0], "has no effect with --samples", value, "Leave it out."))
    if findings:
        raise ConfigError(*findings)


def _pool(text: str | None) -> int | None:
    if text is None or text == "none":
        return None
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        rule = "must be a whole number"
        raise ConfigError("--kv-cache-tokens", rule, text, "Give what the engine printed.") from None
