"""Every field of a pipeline as a flag, and axes as ``--axis NAME=VALUES``: text in, checked values out.

``--batch-tokens 120000`` sets ``batch_tokens``. A law is ``--law shipped:aime-rl-1000`` in short, or any
law as an inline TOML table: ``--response-length '{law="lognormal", median=300}'``. ``none`` empties a field
that may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, get_args

import click
from pydantic.fields import FieldInfo

from ...kernels.errors import ConfigError
from ..config.help_text import level_of
from ..presets.systems import SYSTEM, read_scalar, split_labels
from ..spec.engine_files import engine_table
from ..user_files import parse_toml
from .option_groups import FieldOption

DEFAULT_LAW = "lognormal:300:0.6:16:2048"  # written here: making the law itself would load SciPy
_LAWS = ("response_length", "environment_seconds", "drift")
_WORDS_OF_LAWS = ("name", "path", "column", "level", "beyond")
_OF_ENGINE = "engine__"  # for "engine.", which no keyword has
# What a law needs in the short form, in this order.
_SHORT_LAWS = {
    "shipped": ("name",),
    "fixed": ("n",),
    "uniform": ("minimum", "maximum"),
    "geometric": ("mean", "maximum"),
    "lognormal": ("median", "sigma", "minimum", "maximum"),
    "from_file": ("path", "column"),
}
_SHORT_DRIFTS = {"from_records": ("path", "level", "beyond")}


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every field of a pipeline; values arrive as keywords ``config_<field>``."""
    from ..config.config import PipelineConfig
    from ..config.engine import Engine

    for name, engine_field in reversed(Engine.model_fields.items()):
        command = click.option(
            f"--engine-{name.replace('_', '-')}",
            f"config_{_OF_ENGINE}{name}",
            cls=FieldOption,
            field=f"engine.{name}",
            default_text=default_text(engine_field),
            beyond_core=True,
            metavar="N" if name in ("count", "kv_cache_tokens", "max_running") else "VALUE",
            default=None,
            help=f"{engine_field.description}.",
        )(command)
    for name, field in reversed(PipelineConfig.model_fields.items()):
        flags = [f"--{name.replace('_', '-')}", *(["--law"] if name == "response_length" else [])]
        command = click.option(
            *flags,
            f"config_{name}",
            cls=FieldOption,
            field=name,
            default_text=default_text(field),
            beyond_core=level_of(field) > 1,
            metavar=_metavar(name),
            default=None,
            help=f"{field.description}.",
        )(command)
    return command


def default_text(field: FieldInfo) -> str:
    """Write the default of a field as it would be typed.

    Examples
    --------
    >>> from lagsweep import PipelineConfig
    >>> fields = PipelineConfig.model_fields
    >>> default_text(fields["duration_seconds"]), default_text(fields["limits"])
    ('120', '[]')
    """
    if field.is_required():
        return "required"
    return DEFAULT_LAW if field.default_factory is not None else written_value(field.default)


def written_value(value: Any) -> str:
    """Write a value as it would be typed: none, true, a number, a word.

    Examples
    --------
    >>> [written_value(value) for value in (None, True, 120.0, 7000, (), "fifo")]
    ['none', 'true', '120', '7000', '[]', 'fifo']
    """
    if value is None:
        return "none"
    if value == ():
        return "[]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):  # a law in its short form
        return ":".join(written_value(part) for part in value.values())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _metavar(name: str) -> str:
    from ..config.config import PipelineConfig
    from ..spec.axes import is_whole

    if name in _LAWS:
        return "LAW"
    if name == "engine":
        return "FILE"
    choices = get_args(PipelineConfig.model_fields[name].annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"[{'|'.join(choices)}]"
    if isinstance(PipelineConfig.model_fields[name].default, bool):
        return "[true|false]"
    return "N" if is_whole(name) else "VALUE"


def changes_from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields that were given as flags; each value is checked by its field's own rules.

    Parameters
    ----------
    flags : mapping
        The command's keyword arguments; those that begin with ``config_`` count.

    Raises
    ------
    ConfigError
        Naming the flag.
    """
    from ..spec.axes import ENGINE_PREFIX, checked_value

    changes = {}
    for key, text in flags.items():
        if key.startswith("config_") and text is not None:
            field = key[len("config_") :].replace(_OF_ENGINE, ENGINE_PREFIX)
            flag = f"--{field.replace('_', '-').replace('.', '-')}"
            changes[field] = checked_value(field, read_text(field, text, flag), flag)
    return changes


def preset_from_flags(name: str | None, knobs: tuple[str, ...]) -> dict[str, Any]:
    """Read ``--preset NAME`` and its ``--knob NAME=VALUE`` flags as fields of a spec's base.

    Raises
    ------
    ConfigError
        For a knob without its value.

    Examples
    --------
    >>> preset_from_flags("areal", ("max_head_offpolicyness=2",))
    {'preset': 'areal', 'max_head_offpolicyness': 2}
    """
    fields: dict[str, Any] = {} if name is None else {"preset": name}
    for text in knobs:
        knob, equals, value = text.partition("=")
        if not equals:
            raise ConfigError("--knob", "must read NAME=VALUE", text, "Write --knob window=2.")
        read = read_scalar(value.strip())
        fields[knob.strip().replace("-", "_")] = None if read == "none" else read
    return fields


def read_text(field: str, text: str, where: str) -> Any:
    """Read one value of a field from text: a number, true, false, none, a law, a list of limits, or a word.

    Raises
    ------
    ConfigError
        If an inline table or list is not TOML, or a law's short form does not fit.

    Examples
    --------
    >>> read_text("batch_tokens", "120_000", "--batch-tokens")
    120000
    >>> read_text("response_length", "fixed:300", "--law")
    {'law': 'fixed', 'n': 300}
    """
    text = text.strip()
    if text.startswith(("{", "[")):
        way_out = 'Write {law="fixed", n=300}.'
        return parse_toml(f"value = {text}", where, text, way_out, "must be a TOML table or list: {reason}")[
            "value"
        ]
    if field in _LAWS and text != "none":
        return _short_law(text, where, _SHORT_DRIFTS if field == "drift" else _SHORT_LAWS)
    if field == "engine" and text != "none":
        return engine_table(text)
    return read_scalar(text)


def _short_law(text: str, where: str, known: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    names = known.get(kind)
    if not rest and "shipped" in known:
        from ..laws.shipped import shipped_index

        if kind in shipped_index():
            raise ConfigError(where, "must be a law", text, f"Write shipped:{kind}.")
    parts = rest.split(":") if rest else []
    if names is None or not 0 < len(parts) <= len(names):
        forms = ", ".join(":".join([law, *keys]) for law, keys in known.items())
        raise ConfigError(where, "must be a law", text, f"Short forms: {forms}; or an inline TOML table.")
    values = [part if name in _WORDS_OF_LAWS else read_scalar(part) for name, part in zip(names, parts)]
    return {"law": kind, **dict(zip(names, values))}


def axes_from_flags(texts: tuple[str, ...], also: Collection[str] = ()) -> dict[str, Any]:
    """Read ``--axis`` flags: ``max_lag=0,1,2,4``, ``1..4``, five values ``1..9/5``, or ``1..1000/4/log``.

    Names of `also` are axes of the command, whose values are numbers.

    Raises
    ------
    ConfigError
        Naming the axis.

    Examples
    --------
    >>> axes_from_flags(("max_lag=0,1,2", "queue_cap=1000..64000/4/log"))
    {'max_lag': [0, 1, 2], 'queue_cap': {'from': 1000, 'to': 64000, 'count': 4, 'scale': 'log'}}
    """
    from ..spec.axes import field_of_axis

    axes: dict[str, Any] = {}
    fields: list[str] = []
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ConfigError("--axis", "must read NAME=VALUES", text, "Write --axis max_lag=0,1,2,4.")
        field = name if name in also else field_of_axis(name, "--axis", also)
        if field in fields:
            raise ConfigError("--axis", "must name an axis once", name, "Put all values into one flag.")
        fields.append(field)
        if name in also:
            axes[name] = [read_scalar(part.strip()) for part in values.split(",")]
        else:
            axes[name] = _range(name, values) if ".." in values else _values(name, field, values)
    return axes


def _values(name: str, field: str, text: str) -> list[Any]:
    if field == SYSTEM:
        return list(split_labels(text))
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    return [read_text(field, part, f"--axis {name}") for part in parts]


def _range(name: str, text: str) -> dict[str, Any]:
    ends, *more = text.split("/")
    low, _, high = ends.partition("..")
    given: dict[str, Any] = {"from": read_scalar(low.strip()), "to": read_scalar(high.strip())}
    for part in more:
        if part == "log":
            given["scale"] = "log"
        else:
            given["count"] = read_scalar(part)
    return given
