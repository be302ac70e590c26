"""What of a sweep is the user's own, and what tells it from others: names, settings, source or version.

A spec and a store hold the identity as plain data, never the code. Code is known in a process by being given
there (:func:`remember`), so a result that was read can be run again wherever the same rules were given.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...kernels._arguments import listed
from ...kernels.errors import ConfigError
from ...kernels.pipeline.metrics import METRIC_BY_NAME, Metric
from .rules import TABLES, AdmissionRule, LengthProcess, RunMetric

_RESERVED = frozenset(
    (
        "status",
        "reason",
        "cell",
        "seed",
        "lag",
        "lag_counts",
        "completed",
        "trained",
        "truncated",
        "rollout",
        "window",
    )
)
_GIVE_VERSION = "Give its class a version, as version = '1', and change it when the results change."


@dataclass(frozen=True)
class Custom:
    """Rules, lengths and metrics of the user's own, for :func:`lagsweep.run_sweep`.

    Parameters
    ----------
    admission : AdmissionRule or function, optional
        A function takes the state alone; one of Numba is called without Python in between.
    length : LengthProcess or function, optional
    metrics : sequence of RunMetric

    Raises
    ------
    ConfigError
        If a part is not what it must be, or cannot be told from others.
    """

    admission: AdmissionRule | Callable[..., Any] | None = None
    length: LengthProcess | Callable[..., Any] | None = None
    metrics: tuple[RunMetric, ...] = ()

    def __post_init__(self) -> None:
        for part, kind in (("admission", AdmissionRule), ("length", LengthProcess)):
            rule = getattr(self, part)
            if rule is None or isinstance(rule, kind) or (callable(rule) and not inspect.isclass(rule)):
                continue
            way_out = f"Derive a class from lagsweep.custom.{kind.__name__} and give an instance of it."
            raise ConfigError(part, f"must be an instance of {kind.__name__}, or a function", rule, way_out)
        way_out = "Derive classes from lagsweep.custom.RunMetric and give a list of instances."
        metrics = listed("metrics", self.metrics, way_out)
        for metric in metrics:
            if not isinstance(metric, RunMetric):
                raise ConfigError("metrics", "must be instances of RunMetric", metric, way_out)
            _check_metric(metric)
        names = [metric.name for metric in metrics]
        if len(set(names)) < len(names):
            raise ConfigError("metrics", "must have different names", names, "Rename one.")
        object.__setattr__(self, "metrics", metrics)

    def admits(self, state: Any) -> Any:
        """Ask the admission rule."""
        rule: Any = self.admission
        return rule.admits(state) if isinstance(rule, AdmissionRule) else rule(state)

    def tokens(self, rollout: Any) -> Any:
        """Ask the length process."""
        process: Any = self.length
        return process.tokens(rollout) if isinstance(process, LengthProcess) else process(rollout)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Return every rule and metric that is given, with the name of its place."""
        for part in ("admission", "length"):
            if getattr(self, part) is not None:
                yield part, getattr(self, part)
        for metric in self.metrics:
            yield f"metrics.{metric.name}", metric


def _check_metric(metric: RunMetric) -> None:
    name = metric.name
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", name):
        rule = "must begin with a letter and hold letters, digits and _ alone"
        raise ConfigError("metrics.name", rule, name, "Write name = 'longest_step_seconds'.")
    if name in METRIC_BY_NAME or name in _RESERVED or name.startswith(("baseline_", "window_")):
        raise ConfigError("metrics.name", "must not be a name that results have already", name, "Rename it.")
    for text in ("units", "long_name"):
        if not isinstance(getattr(metric, text), str):
            raise ConfigError(f"metrics.{name}.{text}", "must be a text", getattr(metric, text), "Write one.")
    for table in listed(f"metrics.{name}.tables", metric.tables, "Write ('batches',)."):
        if table not in TABLES:
            rule = f"must be among {', '.join(TABLES)}"
            raise ConfigError(f"metrics.{name}.tables", rule, table, "Write tables = ('batches',).")


# --- identity --------------------------------------------------------------------------------------------


def _identity(part: str, rule: Any) -> dict[str, Any]:
    """Return what tells a rule from others: its name, version or digest of its source, and its settings."""
    function = getattr(rule, "py_func", rule)
    is_function = inspect.isroutine(function)
    found: dict[str, Any] = {"name": function.__qualname__ if is_function else type(rule).__qualname__}
    version = getattr(rule, "version", None)
    if version is not None:
        if not isinstance(version, str) or not version:
            raise ConfigError(f"{part}.version", "must be a text", version, "Write version = '1'.")
        found["version"] = version
    else:
        found["source"] = _source_digest(part, function if is_function else type(rule))
    settings = {} if is_function else dict(sorted(vars(rule).items()))
    if settings:
        found["settings"] = {key: _plain_setting(f"{part}.{key}", value) for key, value in settings.items()}
    return found


def _source_digest(part: str, rule: Any) -> str:
    """Digest the source of a function, or of a class and of those it is derived from, up to ours."""
    parts = [rule]
    if inspect.isclass(rule):
        parts = [
            one for one in rule.__mro__ if one is not object and not one.__module__.startswith("lagsweep.")
        ]
    digest = hashlib.sha256()
    for one in parts:
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):
            rule_text = "must have a source that can be read, or a version"
            raise ConfigError(part, rule_text, one.__qualname__, _GIVE_VERSION) from None
        digest.update(textwrap.dedent(source).strip().encode() + b"\0")
    return digest.hexdigest()[:16]


def _plain_setting(where: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain_setting(where, item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain_setting(where, item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        return f"array {hashlib.sha256(content).hexdigest()[:16]}"
    try:
        content = pickle.dumps(value, protocol=4)
    except Exception:  # whatever pickling raises
        rule = "must be plain, an array, or something that can be pickled, to be told from others"
        raise ConfigError(where, rule, type(value).__name__, "Make it in begin(), for each run.") from None
    return f"{type(value).__qualname__} {hashlib.sha256(content).hexdigest()[:16]}"


@dataclass(frozen=True)
class CustomIdentity:
    """What a spec and a store say of a sweep's own rules: one line of JSON."""

    text: str

    @classmethod
    def from_plain(cls, content: Any) -> CustomIdentity:
        """Read it back from plain data.

        Raises
        ------
        ConfigError
            If it is not what :meth:`plain` gives.
        """
        known = (
            isinstance(content, Mapping) and set(content) <= {"admission", "length", "metrics"} and content
        )
        if not known or not all(isinstance(one, Mapping) and "name" in one for one in _parts_of(content)):
            way_out = "Rules are classes of Python: give them to run_sweep(..., custom=...)."
            raise ConfigError("custom", "must be what a sweep has written", content, way_out)
        return cls(json.dumps(content, separators=(",", ":"), sort_keys=True))

    @property
    def plain(self) -> dict[str, Any]:
        """Plain data for JSON or TOML."""
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def decides(self) -> bool:
        """Whether a rule of the user's decides in the runs, beside metrics computed after them."""
        return bool({"admission", "length"} & set(self.plain))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The user's metrics, as the tables of metrics have them."""
        return tuple(
            Metric(one["metric"], "float64", one.get("units", "1"), one.get("long_name", one["metric"]))
            for one in self.plain.get("metrics", ())
        )

    @property
    def without_metrics(self) -> CustomIdentity | None:
        """The rules that decide alone; None if there are none."""
        rules = {part: one for part, one in self.plain.items() if part != "metrics"}
        return CustomIdentity.from_plain(rules) if rules else None

    def describe(self) -> str:
        """Say in a line which rules results come from.

        Examples
        --------
        >>> print(CustomIdentity.from_plain({"admission": {"name": "Cap", "version": "2"}}).describe())
        admission by Cap (version 2)
        """
        places = {"admission": "admission by", "length": "lengths by"}
        plain = self.plain
        found = [f"{words} {_told(plain[part])}" for part, words in places.items() if part in plain]
        found += [f"{one['metric']} by {_told(one)}" for one in plain.get("metrics", ())]
        return ", ".join(found)

    @property
    def is_known(self) -> bool:
        """Whether the rules themselves were given in this process."""
        return self.text in _KNOWN

    def code(self) -> Custom:
        """Return the rules themselves.

        Raises
        ------
        ConfigError
            If they were not given in this process.
        """
        try:
            return _KNOWN[self.text]
        except KeyError:
            raise ConfigError(
                "custom",
                "must be given to run such runs: their rules are Python that the store does not hold",
                self.describe(),
                "Give them as custom= in Python, or as --custom FILE.py:NAME on the command line.",
            ) from None


def _parts_of(content: Mapping[str, Any]) -> Iterator[Any]:
    for part, one in content.items():
        if part == "metrics":
            yield from one if isinstance(one, list) else [None]
        else:
            yield one


def _told(one: Mapping[str, Any]) -> str:
    told = [f"{name}={value}" for name, value in one.get("settings", {}).items()]
    mark = f"version {one['version']}" if "version" in one else f"source {one.get('source')}"
    return f"{one['name']} ({', '.join([*told, mark])})"


_KNOWN: dict[str, Custom] = {}


def remember(custom: Custom | Mapping[str, Any] | None) -> CustomIdentity | None:
    """Return the identity of rules, and know their code in this process from now on.

    Raises
    ------
    ConfigError
        If a rule cannot be told from others, or `custom` is none.
    """
    if custom is None:
        return None
    way_out = "Write custom=Custom(admission=..., length=..., metrics=[...])."
    if isinstance(custom, Mapping):
        if not set(custom) <= {"admission", "length", "metrics"}:
            raise ConfigError("custom", "may hold admission, length and metrics", list(custom), way_out)
        custom = Custom(**custom)
    if not isinstance(custom, Custom):
        raise ConfigError("custom", "must be a Custom", custom, way_out)
    content: dict[str, Any] = {}
    for part, rule in custom.parts():
        if isinstance(rule, RunMetric):
            about = {"metric": rule.name, "units": rule.units, "long_name": rule.long_name or rule.name}
            content.setdefault("metrics", []).append(about | _identity(part, rule))
        else:
            content[part] = _identity(part, rule)
    if not content:
        return None
    identity = CustomIdentity.from_plain(content)
    _KNOWN[identity.text] = custom
    rules = identity.without_metrics
    if rules is not None:
        _KNOWN[rules.text] = replace(custom, metrics=())
    return identity
