"""What all charts share: colours that colour-blind readers can tell apart, sizes, tooltips, plain data.

Categories take the colours of Okabe and Ito and differ in shape or dash too; amounts take viridis, whose
lightness grows evenly. Charts name no text colour: the place where they stand gives it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
TILE_SCHEME: Literal["viridis"] = "viridis"
# Viridis (Smith and van der Walt, Matplotlib 2.0) at tenths, for points: those whose colours a chart lists.
VIRIDIS = [
    "#440154", "#482475", "#414487", "#355F8D", "#2A788E", "#21918C", "#22A884", "#44BF70", "#7AD151",
    "#BDDF26", "#FDE725",
]  # fmt: skip
# Neither end of viridis shows as a small point on both light and dark; a dark page takes the other part.
_LIGHT_PART, _DARK_PART, _STEPS = (0.0, 0.85), (0.3, 1.0), 60
BLUE_ON_DARK = "#2F8AD8"
ON_DARK, ON_LIGHT = "#ffffff", "#111111"  # text in tiles

# What is useful first, in one colour everywhere; then the reasons for losing time.
_CAUSE_COLOURS = {
    "trainer_busy_seconds": BLUE,
    "trainer_publication_seconds": SKY,
    "trainer_running_groups_seconds": PURPLE,
    "trainer_batch_seconds": ORANGE,
    "trainer_fetch_seconds": GREEN,
    "trainer_evaluation_seconds": GREY,
    "trainer_checkpoint_seconds": YELLOW,
    "trainer_restart_seconds": VERMILLION,
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
    "lost_tokens": YELLOW,
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


def axis_value(value: Any) -> Any:
    """Return an axis's value as charts have it: a plain number or a text, ``none`` for infinity.

    Examples
    --------
    >>> axis_value(float("inf")), axis_value(0.25), axis_value("fifo")
    ('none', 0.25, 'fifo')
    """
    if isinstance(value, float) and math.isinf(value):
        return "none"
    return plain_value(value)


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return values once each: numbers by size, then others as they come.

    Examples
    --------
    >>> distinct([4, "none", 1, 4])
    [1, 4, 'none']
    """
    found = list(dict.fromkeys(values))
    numbers = [value for value in found if isinstance(value, int | float)]
    return sorted(numbers) + [value for value in found if not isinstance(value, int | float)]


def _viridis(share: float) -> str:
    place = share * (len(VIRIDIS) - 1)
    first = min(int(place), len(VIRIDIS) - 2)
    pairs = [[int(VIRIDIS[k][at : at + 2], 16) for at in (1, 3, 5)] for k in (first, first + 1)]
    mixed = [round(one + (other - one) * (place - first)) for one, other in zip(*pairs)]
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def _part(ends: tuple[float, float]) -> list[str]:
    return [_viridis(ends[0] + (ends[1] - ends[0]) * k / _STEPS) for k in range(_STEPS + 1)]


_AMOUNTS = _part(_LIGHT_PART)
ON_DARK_PAGES = dict(zip(_AMOUNTS, _part(_DARK_PART))) | {BLUE: BLUE_ON_DARK}


def scale_colour(share: float) -> str:
    """Return the colour of an amount between the smallest, 0, and the largest, 1."""
    return _AMOUNTS[round(min(1.0, max(0.0, share)) * _STEPS)]


def on_dark(colour: str) -> str:
    """Return what stands for a colour on a dark page.

    Examples
    --------
    >>> on_dark(VERMILLION), on_dark(scale_colour(0.0))
    ('#D55E00', '#355F8D')
    """
    return ON_DARK_PAGES.get(colour, colour)


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
