"""One colour and one shape for each setting, in every chart: by the values of two axes, or of one by both.

A system, or a value of an axis, keeps its colour and shape from chart to chart of a page. Words take the
colours of Okabe and Ito, each with a shape of its own too; more words than colours differ by the pair of
both. Numbers take categories while they are few, else viridis by their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import altair as alt

from ..results.numbers import number
from ..results.words import axis_words
from .style import BLUE, CATEGORIES, GREY, SHAPES, VIRIDIS, axis_value, distinct, scale_colour
from .style import field as column

# Axes that most readers look for, in this order; then the others.
PREFERRED = ("system", "max_lag", "sync_cadence", "queue_cap")
MOST_IN_LEGEND = 12
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1], [1, 4])
# Paths of the shapes, in a square of 14 around the middle.
SHAPE_PATHS = {
    "circle": "M5,0A5,5,0,1,1,-5,0A5,5,0,1,1,5,0Z",
    "square": "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "triangle-up": "M0,-5.5L5.5,4.5H-5.5Z",
    "diamond": "M0,-6L4.5,0L0,6L-4.5,0Z",
    "cross": "M-6,-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z",
    "triangle-down": "M0,5.5L5.5,-4.5H-5.5Z",
}


class Mark(NamedTuple):
    """How one setting looks; the dash of its line tells those apart that look alike otherwise."""

    colour: str
    shape: str = "circle"
    dash: tuple[int, ...] = (1, 0)
    hollow: bool = False


class Legend(NamedTuple):
    """What colours or shapes stand for, as a page writes it."""

    title: str
    marks: Mapping[str, Mark]


@dataclass(frozen=True)
class Marks:
    """How the cells of a sweep look, by the values of their axes.

    Attributes
    ----------
    colour_axis, shape_axis : str, optional
        The axes that decide; they may be the same.
    colours, shapes : mapping
        Value -> colour or shape, in the order of the legend. Of many numbers the colours of some, between
        which others lie.
    amounts : bool
        Whether colours are amounts, so that what lies between two values has a colour between theirs.
    words : frozenset of str
        Axes that mix numbers with none: a chart's rows have their values as words.
    """

    colour_axis: str | None = None
    shape_axis: str | None = None
    colours: Mapping[Any, str] = field(default_factory=dict)
    shapes: Mapping[Any, str] = field(default_factory=dict)
    amounts: bool = False
    words: frozenset[str] = frozenset()

    def value(self, axis: str, value: Any) -> Any:
        """Return an axis's value as the chart's rows and the scales have it."""
        plain = axis_value(value)
        return _word(plain) if axis in self.words else plain

    def of(self, settings: Mapping[str, Any]) -> Mark:
        """Return how a cell looks.

        Examples
        --------
        >>> marks = marks_of({"max_lag": [0, 1, 2], "sync_cadence": [1, 2]})
        >>> marks.of({"max_lag": 1, "sync_cadence": 2})
        Mark(colour='#D55E00', shape='square', dash=(1, 0), hollow=False)
        """
        colour, shape = BLUE, "circle"
        if self.colour_axis is not None and self.colour_axis in settings:
            value = self.value(self.colour_axis, settings[self.colour_axis])
            colour = self._between(value) if self.amounts else self.colours[value]
        if self.shape_axis is not None and self.shape_axis in settings:
            shape = self.shapes[self.value(self.shape_axis, settings[self.shape_axis])]
        return Mark(colour, shape)

    def _between(self, value: float) -> str:
        low, high = min(self.colours), max(self.colours)
        return scale_colour((value - low) / (high - low))

    def legends(self) -> list[Legend]:
        """Return what a page's legends say."""
        found = []
        if self.colour_axis is not None:
            same = self.shape_axis == self.colour_axis
            marks = {
                _word(value): Mark(colour, self.shapes[value] if same else "circle")
                for value, colour in self.colours.items()
            }
            found.append(Legend(axis_words(self.colour_axis).phrase, marks))
        if self.shape_axis is not None and self.shape_axis != self.colour_axis:
            marks = {_word(value): Mark(GREY, shape) for value, shape in self.shapes.items()}
            found.append(Legend(axis_words(self.shape_axis).phrase, marks))
        return found

    def encodings(self, *, legend: bool = True) -> dict[str, Any]:
        """Return a chart's channels for colour and shape, by the columns that :func:`.style.field` names."""
        found: dict[str, Any] = {}
        if self.colour_axis is not None:
            values, kind = list(self.colours), "Q" if self.amounts else "N"
            scale = alt.Scale(domain=values, range=list(self.colours.values()))
            own = {"title": axis_words(self.colour_axis).phrase, "legend": None} if not legend else {
                "legend": alt.Legend(title=axis_words(self.colour_axis).phrase, **_columns(values))
            }  # fmt: skip
            name = f"{column(self.colour_axis)}:{kind}"
            sort = alt.Undefined if self.amounts else values
            found["color"] = alt.Color(name, scale=scale, sort=sort, **own)
        if self.shape_axis is not None:
            values = list(self.shapes)
            scale = alt.Scale(domain=values, range=list(self.shapes.values()))
            same = self.shape_axis == self.colour_axis
            plain: dict[str, Any] = {} if same else {"symbolFillColor": GREY, "symbolStrokeWidth": 0}
            shown = alt.Legend(title=axis_words(self.shape_axis).phrase, **plain, **_columns(values))
            found["shape"] = alt.Shape(
                f"{column(self.shape_axis)}:N", scale=scale, sort=values, legend=shown if legend else None
            )
        return found


def _columns(values: Sequence[Any]) -> dict[str, Any]:
    """Set names one below the other where a row of them would be wide."""
    words = [_word(value) for value in values]
    return {"columns": 1, "labelLimit": 320} if sum(map(len, words)) > 60 else {}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else number(value)


def marks_of(values: Mapping[str, Sequence[Any]]) -> Marks:
    """Choose the axes that decide how cells look, and give each of their values a colour or a shape.

    Parameters
    ----------
    values : mapping
        Axis -> its values; those with one value decide nothing.
    """
    several = {name: distinct([axis_value(value) for value in own]) for name, own in values.items()}
    several = {name: own for name, own in several.items() if len(own) > 1}
    mixed = frozenset(name for name, own in several.items() if len({isinstance(one, str) for one in own}) > 1)
    several |= {name: [_word(value) for value in several[name]] for name in mixed}
    order = [name for name in PREFERRED if name in several]
    order += [name for name in several if name not in order]
    if not order:
        return Marks()
    first, amounts = order[0], _amounts(several[order[0]])
    many_words = not amounts and len(several[first]) > len(CATEGORIES)
    second = next((name for name in order[1:] if len(several[name]) <= len(SHAPES)), None)
    if many_words or (second is None and not amounts):
        second = first
    continuous = amounts and len(several[first]) > MOST_IN_LEGEND
    return Marks(
        first,
        second,
        _colours(several[first], amounts, continuous),
        _shapes(several[second]) if second is not None else {},
        continuous,
        mixed,
    )


def _amounts(values: Sequence[Any]) -> bool:
    return len(values) > len(CATEGORIES) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _colours(values: Sequence[Any], amounts: bool, continuous: bool) -> dict[Any, str]:
    if continuous:
        low, span = float(values[0]), float(values[-1]) - float(values[0])
        places = {round(k * (len(values) - 1) / (len(VIRIDIS) - 1)) for k in range(len(VIRIDIS))}
        some = [values[place] for place in sorted(places)]
        return {value: scale_colour((float(value) - low) / span) for value in some}
    if amounts:
        return {value: scale_colour(k / (len(values) - 1)) for k, value in enumerate(values)}
    return {value: CATEGORIES[k % len(CATEGORIES)] for k, value in enumerate(values)}


def _shapes(values: Sequence[Any]) -> dict[Any, str]:
    """Give each value a shape; past as many as there are, each colour meets the next shape."""
    count = len(SHAPES)
    return {value: SHAPES[(k + k // count) % count] for k, value in enumerate(values)}


def told_apart(marks: Mapping[str, Mark]) -> dict[str, Mark]:
    """Give those that look alike lines of different dashes.

    Examples
    --------
    >>> told = told_apart({"a": Mark("#000000"), "b": Mark("#000000"), "c": Mark("#ffffff")})
    >>> [mark.dash for mark in told.values()]
    [(1, 0), (6, 3), (1, 0)]
    """
    seen: dict[tuple[str, str], int] = {}
    found = {}
    for name, mark in marks.items():
        count = seen.setdefault((mark.colour, mark.shape), 0)
        seen[mark.colour, mark.shape] += 1
        found[name] = mark._replace(dash=tuple(DASHES[count % len(DASHES)]))
    return found


def named_marks(names: Sequence[str]) -> dict[str, Mark]:
    """Give names, such as those of systems, each a colour and a shape.

    Examples
    --------
    >>> [mark.shape for mark in named_marks(["areal", "tinker"]).values()]
    ['circle', 'square']
    """
    marks = marks_of({"system": names})
    return {name: marks.of({"system": name}) for name in names}


def by_label(marks: Mapping[str, Mark], *, dashes: bool = False) -> dict[str, Any]:
    """Return channels for rows with a ``label``: colour, fill, shape, with `dashes` the line's dash."""
    labels = list(marks)
    common: dict[str, Any] = {"field": "label", "type": "nominal", "title": None, "sort": labels}

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=labels, range=values)

    colours = scale([mark.colour for mark in marks.values()])
    found: dict[str, Any] = {
        "color": alt.Color(**common, scale=colours),
        "fill": alt.Fill(**common, scale=colours, legend=None),
        "shape": alt.Shape(**common, scale=scale([mark.shape for mark in marks.values()])),
    }
    if dashes:
        found["strokeDash"] = alt.StrokeDash(
            **common, scale=scale([list(mark.dash) for mark in marks.values()])
        )
    return found
