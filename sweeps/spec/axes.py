"""The values of one axis: written out or as a range, checked by the field's own rules, and labelled.

An axis is a list of values or a range, as ``{from = 1, to = 4}`` (whole steps), ``{from = 0.1, to = 1.6,
step = 0.5}``, ``{from = 1, to = 1000, count = 4, scale = "log"}``. Both ends belong to a range, and its
values are the short decimals that a person would type.
"""

from __future__ import annotations

import json
import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, SupportsIndex, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import RealNumber, WholeNumber, checked, findings_of
from ..config.config import AXIS_FIELDS, WAYS_OUT, Limit, PipelineConfig
from ..config.engine import Engine
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw, SecondsLaw
from ..presets.base import LARGEST_KNOB
from ..presets.registry import all_presets
from ..presets.systems import SYSTEM, SystemLabel, checked_label

MOST_VALUES = 10_000_000
_FEW = 3  # knobs that a message names
_ROUNDING = 1e-13  # what is lost by a few steps of arithmetic
PRESET_PREFIX = "preset."
ENGINE_PREFIX = "engine."
_RANGE_KEYS = ("from", "to", "step", "count", "scale")
_LAWS: dict[str, Any] = {
    "response_length": LengthLaw,
    "environment_seconds": SecondsLaw,
    "drift": DriftLaw,
}
_NUMBER = re.compile(r"-?[0-9.]+(e[-+]?[0-9]+)?")
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}


def field_of_axis(name: str, where: str = "axes", also: Collection[str] = ()) -> str:
    """Return the configuration field that an axis sets.

    Parameters
    ----------
    name : str
        One of the three named axes, ``system``, a preset's knob as ``preset.<knob>``, or any field of
        ``PipelineConfig`` but ``seed``.
    where : str
        What to call the place in an error.
    also : collection of str
        Further axes of the command that asks, which a misspelt name may have meant.

    Raises
    ------
    ConfigError
        If no such field exists.

    Examples
    --------
    >>> field_of_axis("max_lag"), field_of_axis("batch_tokens")
    ('max_policy_lag', 'batch_tokens')
    """
    if not isinstance(name, str):
        raise ConfigError(where, "must name axes by texts", name, "Write max_lag, for one.")
    field = AXIS_FIELDS.get(name, name)
    if is_knob(field):
        return _checked_knob(field, where)
    if field.startswith(ENGINE_PREFIX):
        if engine_field(field) is None:
            known_fields = [f"{ENGINE_PREFIX}{known}" for known in Engine.model_fields]
            hint = nearest(field, known_fields) or f"Its fields: {', '.join(Engine.model_fields)}."
            raise ConfigError(where, "must name a field of the engine", field, hint)
        return field
    if field == "seed":
        raise ConfigError(f"{where}.seed", "is always swept", name, "Give seeds = 100 or a list.")
    if field == SYSTEM:
        return field
    if not is_field(field):
        if _knobs(f"{PRESET_PREFIX}{name}"):
            way_out = f"A preset's knob is swept as {PRESET_PREFIX}{name}."
            raise ConfigError(where, "must name a field", name, way_out)
        known = [
            *also,
            SYSTEM,
            *AXIS_FIELDS,
            *(known for known in PipelineConfig.model_fields if known != "seed"),
        ]
        rule = "must name a field or queue_cap, max_lag, sync_cadence"
        raise ConfigError(where, rule, name, _axis_meant(name, known))
    return field


def _axis_meant(name: str, known: Sequence[str]) -> str:
    """Say which axis a name may stand for: the nearest of all, and a preset's knobs that hold it as a word.

    Examples
    --------
    >>> _axis_meant("staleness_threshol", ["max_policy_lag"])
    "Did you mean 'preset.staleness_threshold'?"
    """
    knobs = {knob.name: preset.name for preset in all_presets().values() for knob in preset.knobs}
    holding = [knob for knob in knobs if name in knob.split("_")]
    if holding:
        some = ", ".join(f"{PRESET_PREFIX}{knob} (as {knobs[knob]} has)" for knob in sorted(holding)[:_FEW])
        said = f"A preset's knob is {PRESET_PREFIX}<knob>: {some}; whole presets are the axis {SYSTEM}."
        return f"{nearest(name, known)} {said}".strip()
    if (hint := nearest(name, known)) or not (hint := nearest(name, knobs)):
        return hint or f"A preset's knob is {PRESET_PREFIX}<knob>, whole presets are the axis {SYSTEM}."
    return hint.replace("'", f"'{PRESET_PREFIX}", 1)


def is_knob(field: str) -> bool:
    """Tell whether an axis sets a preset's knob (``preset.<knob>``) and not a field."""
    return field.startswith(PRESET_PREFIX)


def engine_field(field: str) -> str | None:
    """Return the engine's field that an axis sets, as ``max_running`` of ``engine.max_running``."""
    name = field.removeprefix(ENGINE_PREFIX)
    return name if field.startswith(ENGINE_PREFIX) and name in Engine.model_fields else None


def is_field(name: str) -> bool:
    """Tell whether an axis sets a field of the configuration; the others change rules: a knob, the system."""
    return name in PipelineConfig.model_fields


def axis_description(field: str) -> str:
    """Say in a few words what an axis sets.

    Examples
    --------
    >>> axis_description("max_policy_lag")
    'largest lag, in versions, that may be trained'
    >>> axis_description("system")
    'the real system whose rules hold: a preset, with its knobs'
    """
    if field == SYSTEM:
        return "the real system whose rules hold: a preset, with its knobs"
    if own := engine_field(field):
        return f"engine: {Engine.model_fields[own].description}"
    return str(PipelineConfig.model_fields[field].description) if is_field(field) else f"knob {field}"


def _knobs(field: str) -> list[Any]:
    """Return the knobs of that name, of all presets."""
    name = field.removeprefix(PRESET_PREFIX)
    return [knob for preset in all_presets().values() for knob in preset.knobs if knob.name == name]


def _checked_knob(field: str, where: str) -> str:
    if not _knobs(field):
        known = {f"{PRESET_PREFIX}{knob.name}" for preset in all_presets().values() for knob in preset.knobs}
        hint = nearest(field, known) or "`lagsweep presets NAME` lists a preset's knobs."
        raise ConfigError(where, "must name a knob of the preset", field, hint)
    return field


def allows_none(field: str) -> bool:
    """Tell whether a field may be left empty (``none`` in a spec file or on the command line)."""
    if own := engine_field(field):
        return type(None) in get_args(Engine.model_fields[own].annotation)
    if not is_field(field):
        return is_knob(field)
    return type(None) in get_args(PipelineConfig.model_fields[field].annotation)


def is_whole(field: str) -> bool:
    """Tell whether a field takes whole numbers."""
    if own := engine_field(field):
        return own in ("count", "kv_cache_tokens", "max_running")
    if not is_field(field):
        return is_knob(field) and all(type(knob.default) is int for knob in _knobs(field))
    annotation = PipelineConfig.model_fields[field].annotation
    return annotation is int or int in [getattr(part, "__origin__", part) for part in get_args(annotation)]


def knob_may_be_whole(field: str) -> bool:
    """Tell whether a knob may be a whole number only: no preset's default of it is a fraction."""
    return not any(isinstance(knob.default, float) for knob in _knobs(field))


def read_none(field: str, value: Any) -> Any:
    """Turn the text ``none`` into None where the field allows it (TOML has no null)."""
    return None if isinstance(value, str) and value == "none" and allows_none(field) else value


def checked_value(field: str, value: Any, where: str) -> Any:
    """Check one value by the field's own rules and give it in the field's own type.

    Raises
    ------
    ConfigError
        With `where` as the name of the field.
    """
    if field in _LAWS:
        return _checked_law(field, read_none(field, value), where)
    if field == SYSTEM:
        return checked_label(value, where)
    if is_knob(field):  # the preset itself knows its range
        value = value.item() if isinstance(value, np.generic) else read_none(field, value)
        if value is None or isinstance(value, bool | str):
            return value
        if not isinstance(value, int | float):
            raise ConfigError(where, "must be a number, a word, true, false or none", value, "Give one.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(where, "must be finite", value, "Give a finite number.")
        if abs(value) > LARGEST_KNOB:
            raise ConfigError(where, "must be at most 2**52", value, "Give a smaller number.")
        return value
    if field not in _ADAPTERS:
        own = engine_field(field)
        info = Engine.model_fields[own] if own else PipelineConfig.model_fields[field]
        kind: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        _ADAPTERS[field] = TypeAdapter(kind)
    try:
        return _ADAPTERS[field].validate_python(read_none(field, value))
    except ValidationError as error:
        found = findings_of(error, PipelineConfig.model_fields)
        raise ConfigError(*(finding._replace(field=where) for finding in found)) from None
    except ConfigError as error:  # of an engine, which checks itself
        raise error.within(f"{where}: ") from None


def _checked_law(field: str, value: Any, where: str) -> Any:
    law = _LAWS[field]
    if isinstance(value, law) or (value is None and allows_none(field)):
        return value
    if isinstance(value, Mapping):
        try:
            return law.from_dict(value)
        except ConfigError as error:
            raise error.within(f"{where}: ") from None
    raise ConfigError(where, "must be a law", value, WAYS_OUT[field])


def expand(name: str, given: Any, where: str = "axes") -> list[Any]:
    """Write out the values of an axis.

    Parameters
    ----------
    name : str
        The axis.
    given : sequence, array, range or mapping
        Values, or a range with ``from``, ``to`` and optionally ``step`` or ``count``, and ``scale``.
    where : str
        What to call the place in an error.

    Raises
    ------
    ConfigError
        For an empty axis, a bare value, or a range that makes no sense.

    Examples
    --------
    >>> expand("sync_cadence", {"from": 1, "to": 4})
    [1, 2, 3, 4]
    >>> expand("queue_cap", {"from": 1000, "to": 64000, "count": 4, "scale": "log"})
    [1000, 4000, 16000, 64000]
    """
    place = f"{where}.{name}"
    if isinstance(given, Mapping):
        return _expand_range(name, given, place)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(place, "must be a list of values or a range", given, f"Write [{given!r}].")
    values = [item.item() if isinstance(item, np.generic) else item for item in given]
    if not values:
        raise ConfigError(place, "must have at least one value", values, "Give values, or drop the axis.")
    return values


def _expand_range(name: str, given: Mapping[str, Any], place: str) -> list[Any]:
    for key in given:
        if key not in _RANGE_KEYS:
            hint = nearest(str(key), _RANGE_KEYS) or f"Known keys: {', '.join(_RANGE_KEYS)}."
            raise ConfigError(f"{place}.{key}", "is not a key of a range", given[key], hint)
    low, high = (_end(given, key, place) for key in ("from", "to"))
    if high < low:
        raise ConfigError(f"{place}.to", f"must be at least from, which is {low}", high, "Swap them.")
    if not math.isfinite(float(high) - float(low)):
        raise ConfigError(place, "must be a range with a finite span", dict(given), "Narrow it.")
    scale = given.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise ConfigError(f"{place}.scale", "must be 'linear' or 'log'", scale, "Choose one of them.")
    whole = is_whole(field_of_axis(name))
    if "count" in given:
        numbers = _by_count(given, low, high, scale, place, whole)
    elif scale == "log":
        raise ConfigError(f"{place}.count", "is required with scale 'log'", None, "Give count = 5.")
    else:
        numbers = _by_step(given, low, high, place)
    if not whole:
        return numbers
    # Rounding a fine range to whole numbers may repeat one; the axis then has it once.
    return list(dict.fromkeys(round(number) for number in numbers))


def _end(given: Mapping[str, Any], key: str, place: str) -> int | float:
    value: Any = given.get(key)
    number = checked(
        RealNumber, f"{place}.{key}", value, rule="must be a finite number", way_out=f"Give {key} = 1."
    )
    # A whole number stays exact.
    return operator.index(value) if isinstance(value, SupportsIndex) else float(number)


def _by_count(
    given: Mapping[str, Any], low: float, high: float, scale: str, place: str, whole: bool
) -> list[float]:
    rule, way_out = "must be a whole number from 1", "Give count = 5."
    count = checked(
        WholeNumber, f"{place}.count", given["count"], low=1, high=MOST_VALUES, rule=rule, way_out=way_out
    )
    if "step" in given:
        raise ConfigError(f"{place}.step", "excludes count", given["step"], "Give one of the two.")
    if count == 1 and low != high:
        raise ConfigError(f"{place}.count", "must be at least 2, one for each end", count, "Give count = 2.")
    if scale == "linear":
        # Whole ones are rounded yet, and their halves go where they always went.
        return [float(n) for n in np.linspace(low, high, count)] if whole else between(low, high, count - 1)
    if low <= 0:
        raise ConfigError(f"{place}.from", "must be above 0 with scale 'log'", low, "Raise it.")
    numbers = np.exp(np.linspace(math.log(low), math.log(high), count))
    # The ends are the numbers as written, not their exp(log()).
    return [float(low), *(_typed(float(number)) for number in numbers[1:-1]), float(high)][:count]


def _typed(number: float) -> float:
    """Return the short decimal that a number is but for rounding, else the number."""
    short = float(f"{number:.12g}")
    return short if math.isclose(number, short, rel_tol=_ROUNDING) else number


def nearly(value: Any, known: Sequence[Any]) -> Any:
    """Return the known value that a number is but for rounding, else the number itself.

    A store may hold 0.30000000000000004 where a person types 0.3 and means the same cell.

    Examples
    --------
    >>> nearly(0.3, [0.2, 0.30000000000000004]), nearly(0.31, [0.3]), nearly("a", [0.3])
    (0.30000000000000004, 0.31, 'a')
    """
    if not isinstance(value, float) or value in known:
        return value
    numbers = (item for item in known if isinstance(item, float))
    return next((item for item in numbers if math.isclose(value, item, rel_tol=_ROUNDING)), value)


def nearly_all(values: Sequence[Any], known: Sequence[Any]) -> tuple[Any, ...]:
    """Return what :func:`nearly` gives for each of some values, without a look at all known ones for each.

    Examples
    --------
    >>> nearly_all([0.1 + 0.2, 0.31, 2.0, "a"], [0.3, 0.1, 2])
    (0.3, 0.31, 2.0, 'a')
    """
    same = {item for item in known if isinstance(item, int | float)}
    order = sorted((item, place) for place, item in enumerate(known) if isinstance(item, float))
    numbers = [item for item, _ in order]

    def one(value: Any) -> Any:
        if not isinstance(value, float) or value in same:
            return value
        around = 2 * _ROUNDING * abs(value)
        first, last = bisect_left(numbers, value - around), bisect_right(numbers, value + around)
        close = [
            (place, item) for item, place in order[first:last] if math.isclose(value, item, rel_tol=_ROUNDING)
        ]
        return min(close)[1] if close else value

    return tuple(map(one, values))


def between(low: float, high: float, steps: int) -> list[Any]:
    """Divide a span into equal steps: each value is the float nearest to the exact one.

    The ends count as the decimals that a person wrote, so that a tenth is a tenth.

    Examples
    --------
    >>> between(0.1, 0.4, 3)
    [0.1, 0.2, 0.3, 0.4]
    """
    if steps == 0:
        return [float(low)]
    first, last = (Fraction(repr(end)) for end in (low, high))
    scale = math.lcm(first.denominator, last.denominator)
    begin, end, below = int(first * scale), int(last * scale), steps * scale
    return [(begin * (steps - place) + end * place) / below for place in range(steps + 1)]


def _by_step(given: Mapping[str, Any], low: float, high: float, place: str) -> list[Any]:
    step = _end(given, "step", place) if "step" in given else 1
    if step <= 0:
        raise ConfigError(f"{place}.step", "must be above 0", step, "Give a positive step.")
    exact = (Fraction(repr(high)) - Fraction(repr(low))) / Fraction(repr(step))
    steps = round(exact)
    if steps >= MOST_VALUES:
        raise ConfigError(f"{place}.step", f"must give at most {MOST_VALUES} values", step, "Enlarge it.")
    if abs(exact - steps) > Fraction(1, 10**9) * max(1, steps):
        rule = f"must lead from {low} to {high}, both of which belong to the range"
        way_out = "Give another step, or count (LOW..HIGH/COUNT on the command line)."
        raise ConfigError(f"{place}.step", rule, step, way_out)
    if all(isinstance(number, int) for number in (low, high, step)):
        return list(range(int(low), int(high) + 1, int(step)))
    return between(low, high, steps)


def checked_axis(
    name: str, values: Sequence[Any], where: str = "axes", *, distinct: bool = True
) -> tuple[Any, ...]:
    """Check every value of an axis, and that none occurs twice.

    Raises
    ------
    ConfigError
        With a line per bad value.

    Examples
    --------
    >>> checked_axis("max_lag", [0, 1.0, 4])
    (0, 1, 4)
    """
    field = field_of_axis(name, where)
    place = f"{where}.{name}"
    findings: list[Finding] = []
    checked = []
    for value in values:
        try:
            checked.append(checked_value(field, value, place))
        except ConfigError as error:
            findings += error.findings
    if not findings and distinct:
        seen: set[str] = set()
        for value in checked:
            key = identity(value)
            if key in seen:
                findings.append(
                    Finding(place, "must not repeat a value", shown(value), "Give each value once.")
                )
            seen.add(key)
    if findings:
        raise ConfigError(*findings)
    return tuple(checked)


def plain(value: Any) -> Any:
    """Return a checked value as plain data for JSON or TOML; :func:`checked_value` reads it back."""
    if type(value) in (int, float):  # most values of long axes
        return value
    if isinstance(value, LengthLaw | DriftLaw):
        return value.to_dict(
            embed=True
        )  # the data of a law from a file go into the spec: a store stands alone
    if isinstance(value, SecondsLaw):
        return value.to_dict()
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, SystemLabel):
        return str(value)
    if isinstance(value, Engine):
        return value.to_dict()
    return value.model_dump() if isinstance(value, Limit) else value


def identity(value: Any) -> str:
    """Return what tells a value from others, as text: a law's table, not the words that made it."""
    if type(value) in (int, float):
        return repr(value)  # as json.dumps writes it, many times faster
    if isinstance(value, LengthLaw | SecondsLaw | DriftLaw):
        rows = getattr(value, "rows", None)
        content: Any = {"law": value.digest, "cut": bool(getattr(value, "cut_at_maximum", False))}
        if rows is not None:
            content["rows"] = rows.digest
    else:
        content = value.identity if isinstance(value, SystemLabel) else plain(value)
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def label(value: Any) -> str:
    """Name a value in one short line.

    Examples
    --------
    >>> label(None), label(True), label("reserve")
    ('none', 'true', 'reserve')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, LengthLaw | SecondsLaw | DriftLaw):
        return value.name
    if isinstance(value, tuple):
        return " and ".join(f"{item.count}<B*{item.done}+{item.groups}" for item in value) or "no limits"
    if isinstance(value, Engine):
        return " ".join(f"{name}={given}" for name, given in value.to_dict().items())
    return str(value)


def shown(value: Any) -> Any:
    """Return what a message shows for a value of an axis: a number as it is, anything else by its label.

    Examples
    --------
    >>> shown(1), shown(0.5), shown(True), shown(None)
    (1, 0.5, 'true', 'none')
    """
    return value if isinstance(value, int | float) and not isinstance(value, bool) else label(value)


def numbers_beside_none(labels: np.ndarray) -> np.ndarray | None:
    """Return the labels of an axis as numbers, infinity for none; None where they are anything else.

    Examples
    --------
    >>> numbers_beside_none(np.array(["none", "15000", "5000"])).tolist()
    [inf, 15000.0, 5000.0]
    >>> numbers_beside_none(np.array(["none", "reserve"])) is None
    True
    """
    texts = labels.tolist() if labels.dtype.kind == "U" else []
    numbers = [text for text in texts if text != "none"]
    if not numbers or len(numbers) == len(texts) or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    return np.array([math.inf if text == "none" else float(text) for text in texts])


def coordinate(values: Sequence[Any]) -> np.ndarray:
    """Return the values of an axis as a store keeps them: numbers where all are numbers, else labels.

    Examples
    --------
    >>> coordinate([1, 2])
    array([1, 2])
    >>> coordinate(["threshold", "reserve"]).tolist()
    ['threshold', 'reserve']
    """
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.float64)
    labels = [label(value) for value in values]
    counts = Counter(labels) if len(values) < 10_000 else Counter()
    repeated = {text for text, count in counts.items() if count > 1}
    for index, text in enumerate(labels):
        digest = getattr(values[index], "digest", None)
        if text in repeated and digest:
            labels[index] = f"{text} {digest[:8]}"
    return np.array(labels, dtype=np.str_)
