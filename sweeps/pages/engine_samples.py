"""A step fitted to an engine's samples as one offline page: its parts, their match, what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ..charts.engine import (
    LEVEL_COLOURS,
    SAMPLE_COLOURS,
    cache_chart,
    load_chart,
    match_chart,
    thinned_levels,
)
from ..charts.style import plain_value
from ..checks import text_of
from ..files import write_atomically
from ..logs.engine_samples_fit import EngineSamplesFit
from ..logs.text import engine_samples_heading, samples_coefficient_rows
from .figures import Figure
from .page import Table, checked_page, linked_page

NAME = ("--page", "engine.html")
_MOST_POINTS = 3000


def checked_samples_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
    """
    return checked_page(path, *NAME)


def write_samples_page(path: str | Path, fit: EngineSamplesFit, *, toml: str = "", line: str = "") -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
        ``something.html``.
    fit : EngineSamplesFit
        Refused or not.
    toml : str
        The engine as a file.
    line : str
        The command that makes the page again.

    Raises
    ------
    ConfigError
        For a bad file name.
    """
    target = checked_page(path, *NAME)
    instance("fit", fit, EngineSamplesFit, "Give what fit_engine_samples returns.")
    toml, line = (text_of(name, text, "Give text.") for name, text in (("toml", toml), ("line", line)))
    title = engine_samples_heading(fit)
    figures = [*_matches(fit), *_over_time(fit)]
    content = linked_page(
        "engine_samples.html",
        f"{title} · lagsweep",
        figures,
        lambda _: {},
        heading=title,
        notes=list(fit.refusals or fit.notes),
        coefficients=_parts(fit),
        matches=[one for one in figures if one.name == "match"],
        times=[one for one in figures if one.name != "match"],
        findings=[f"{one.about}: {one.words} ({one.done})" for one in fit.findings],
        columns=[f"{name}: {column!r}" for name, column in fit.log.columns.items()],
        toml=toml,
        line=line,
    )
    write_atomically(target, content)
    return target


def _parts(fit: EngineSamplesFit) -> Table | None:
    if fit.refusals:
        return None
    header, rows = samples_coefficient_rows(fit)
    return Table(list(zip(header, ("text whole", "", "text", "text"))), rows)


def _matches(fit: EngineSamplesFit) -> list[Figure]:
    """Draw the steps of the fit against the measured ones."""
    if not len(fit.errors):
        return []
    seen = 1e3 * fit.windows.step_seconds
    stride = max(1, -(-len(seen) // _MOST_POINTS))
    rows = [
        {
            "request": int(fit.windows.rows[place]) + 1,
            "measured": plain_value(float(seen[place])),
            "predicted": plain_value(float(seen[place] * (1 + fit.errors[place]))),
            "running": plain_value(float(fit.windows.running[place])),
            "set": list(SAMPLE_COLOURS)[0 if fit.kept_rows[place] else 1],
        }
        for place in range(0, len(seen), stride)
    ]
    caption = "One point a sample of decoding alone; on the dashed line the fit and the log are equal."
    also = {"running": "running"}
    return [
        Figure(
            "match", "A step: fitted against measured", caption,
            lambda _: match_chart(rows, "step, ms", colours=SAMPLE_COLOURS, also=also), SAMPLE_COLOURS,
        )
    ]  # fmt: skip


def _over_time(fit: EngineSamplesFit) -> list[Figure]:
    """Draw what ran, waited and was in the cache, of the rank with the most samples."""
    frame = fit.log.frame
    ranks, counts = np.unique(frame["rank"].to_numpy(), return_counts=True)
    rank = int(ranks[np.argmax(counts)])
    frame = frame.filter((frame["rank"] == rank) & frame["seconds"].is_not_null())
    seconds = frame["seconds"].to_numpy()
    if len(seconds) < 2 or (np.diff(seconds) < 0).any():
        return []
    end = float(seconds[-1]) or 1.0
    names = {"running": "running", "waiting": "waiting", "cache_tokens": "kv_tokens"}
    levels = {new: frame[name].fill_null(0.0).to_numpy() for name, new in names.items()}
    rows: list[dict[str, Any]] = thinned_levels(seconds, levels, end)
    of = f" Rank {rank} of {len(ranks)}." if len(ranks) > 1 else ""
    found = [
        Figure(
            "load", "Running and waiting", f"Requests as the log has them.{of}",
            lambda _: load_chart(rows, max_running=None, end=end), LEVEL_COLOURS,
        )
    ]  # fmt: skip
    if frame["cache_tokens"].null_count() < len(frame):
        found.append(
            Figure(
                "cache", "Cache", f"Tokens in the cache.{of}",
                lambda _: cache_chart(rows, kv_cache_tokens=fit.log.pool_tokens, end=end),
            )
        )  # fmt: skip
    return found
