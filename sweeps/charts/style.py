"""What all charts share: colours that colour-blind readers can tell apart, sizes, tooltips, plain data.

Categories take the colours of Okabe and Ito and differ in shape or dash too; amounts take viridis, whose
lightness grows evenly. Charts name no text colour: the place where they stand gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from ..results.words import CAUSES

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY, YELLOW = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F98", "#F0E442",
)  # fmt: skip
CATEGORIES = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
WIDTH, HEIGHT = 520, 320
FADED = 0.12
# Neither end of viridis shows as a small point on both light and dark; a dark page takes the other part.
POINT_SCHEME = {"name": "viridis", "extent": [0.0, 0.85]}
TILE_SCHEME: Literal["viridis"] = "viridis"
ON_DARK, ON_LIGHT = "#ffffff", "#111111"  # text in tiles

# What is useful first, in one colour everywhere; then the reasons for losing time.
_CAUSE_COLOURS = {
    "trainer_busy_seconds": BLUE,
    "trainer_publication_seconds": SKY,
    "trainer_running_groups_seconds": PURPLE,
    "trainer_batch_seconds": ORANGE,
    "trainer_fetch_seconds": GREEN,
    "trainer_evaluation_seconds": GREY,
    "slots_busy_seconds": BLUE,
    "slots_publication_seconds": SKY,
    "slots_max_running_seconds": PURPLE,
    "slots_one_batch_seconds": GREEN,
    "slots_token_cap_seconds": ORANGE,
    "slots_sequential_seconds": GREY,
    "slots_limits_seconds": VERMILLION,
    "slots_held_seconds": YELLOW,
    "trained_tokens": BLUE,
    "discarded_tokens": VERMILLION,
    "left": GREY,
}
COLOUR_OF_CAUSE = {
    cause.words: _CAUSE_COLOURS[name] for parts in CAUSES.values() for name, cause in parts.items()
}


def look(
    ink: str, dim: str, line: str, *, background: str = "transparent", font: str = "system-ui, sans-serif"
) -> dict[str, Any]:
    """Return the part of a specification that says how text, axes and legends look.

    Parameters
    ----------
    ink, dim, line : str
        Colours of titles, of labels and of lines.
    background, font : str
    """
    fonts = {"titleFont": font, "labelFont": font, "titleFontWeight": 500}
    lines = {"gridColor": line, "domainColor": line, "tickColor": line}
    axis = {"labelColor": dim, "titleColor": ink, "titleFontSize": 12, "labelFontSize": 11, **fonts, **lines}
    legend = {"labelColor": ink, "titleColor": dim, "labelFontSize": 12, "symbolOpacity": 1, **fonts}
    beside = {"direction": "horizontal", "margin": 18, "anchor": "start"}
    return {
        "background": background,
        "font": font,
        "axis": axis,
        "legend": {**legend, "orient": "top", "layout": {"top": beside}},
        "title": {"color": ink, "fontWeight": 600},
        "view": {"stroke": None},
    }


# A file is dark on white. A drawing in a page has the page's ink, a page's script reads the page's variables.
ON_PAPER = look("#1d2129", "#5b6472", "#e4e6ea", background="#ffffff", font="sans-serif")
IN_PAGE = look("currentColor", "currentColor", "#8883", font="sans-serif")
BY_VARIABLES = look("--ink", "--dim", "--line")


def field(name: str) -> str:
    """Name a column of a chart's rows for an axis: a dot would mean a part of a value.

    Examples
    --------
    >>> field("preset.max_staleness")
    'preset_max_staleness'
    """
    return name.replace(".", "_")


def plain_value(value: Any) -> Any:
    """Return a number as JSON has it, rounded to what a chart can show."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def distinct(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a column's values once each: numbers by size, others as they come."""
    values = list(dict.fromkeys(row[name] for row in rows))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def ordinal_scale(values: Sequence[Any]) -> alt.Scale:
    """Choose colours for the values of an axis: categories while they are few, else viridis."""
    if len(values) <= len(CATEGORIES):
        return alt.Scale(domain=list(values), range=CATEGORIES[: len(values)])
    return alt.Scale(domain=list(values), scheme=POINT_SCHEME)


def label_tooltip() -> alt.Tooltip:
    """Name the configuration."""
    return alt.Tooltip("label:N", title="configuration")


def interval_tooltips(
    name: str, title: str, form: str, confidence: float, ends: tuple[str, str] = ("low", "high")
) -> list[alt.Tooltip]:
    """Show a mean and the ends of its interval."""
    low, high = ends
    return [
        alt.Tooltip(f"{name}:Q", title=title, format=form),
        alt.Tooltip(f"{low}:Q", title=f"{confidence:.0%} from", format=form),
        alt.Tooltip(f"{high}:Q", title=f"{confidence:.0%} to", format=form),
    ]
