"""Tell whole columns of records that break no rule from those that have to be looked at singly.

A screen is made from one record and holds for all that have the same keys and the same kinds of values: what
follows from these alone is decided by the one, and what depends on values becomes columns with explicit
types and conditions on them. A screen may doubt a good record, which is then looked at by itself; it never
passes one that breaks a rule, an error or a warning. So findings come from one place alone, the contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ...kernels.contract.contract import RolloutContract
from ...kernels.contract.rules import LENGTH_STOPS, TRAINABLE_STOPS

_STOPS = [word for stop in TRAINABLE_STOPS for word in (stop, stop.upper(), stop.capitalize())]
_LENGTHS = [word for stop in LENGTH_STOPS for word in (stop, stop.upper(), stop.capitalize())]
_IDS = ("sample_id", "prompt_id", "verifier_version", "group_id", "episode_id")
_TYPES: dict[str, Any] = {
    "text": pl.String,
    "whole": pl.Int64,
    "number": pl.Float64,
    "ids": pl.List(pl.Int64),
    "numbers": pl.List(pl.Float64),
}
_NONE = ("absent", "null")


class _Doubt(Exception):
    """Records of this form are looked at singly."""


@dataclass(frozen=True)
class Screen:
    """Columns, conditions, and what else is taken from records of one form.

    Attributes
    ----------
    columns : dict
        Explicit types of the columns that are read, by the record's own names.
    clean : polars.Expr
        Whether a record breaks no rule.
    values : dict of str to polars.Expr
        ``sample``, ``group``, ``episode``, ``space``, ``verifier``, ``version``, ``reward`` and ``tokens``,
        those that are there.
    kinds : dict of str to str
        Of ids: ``text`` or ``whole``.
    group_name : str
        Our name of the field that ``group`` is from.
    settings, rest : Screen or None
        The same in two: of how a record was decoded, which most records have alike, and of all else.
    """

    columns: dict[str, Any]
    clean: pl.Expr
    values: dict[str, pl.Expr]
    kinds: dict[str, str]
    group_name: str
    settings: Screen | None = None
    rest: Screen | None = None


def kind_of(value: Any) -> str:
    """Return the kind of a value as it came from JSON.

    Examples
    --------
    >>> [kind_of(value) for value in (1, 1.5, "a", None, [1, 2], [1, 2.5], [], {}, True)]
    ['whole', 'number', 'text', 'null', 'ids', 'numbers', 'list', 'mapping', 'other']
    """
    kinds = {type(None): "null", int: "whole", float: "number", str: "text", dict: "mapping"}
    if type(value) is list:
        inside = set(map(type, value))
        return "ids" if inside == {int} else "numbers" if inside and inside <= {int, float} else "list"
    return kinds.get(type(value), "other")


def kind_of_column(dtype: Any) -> str:
    """Return the kind of the values of a parquet column."""
    if dtype.is_integer():
        return "whole"
    if dtype.is_float():
        return "number"
    if dtype == pl.String:
        return "text"
    if isinstance(dtype, pl.List):
        return {"whole": "ids", "number": "numbers"}.get(kind_of_column(dtype.inner), "list")
    return "mapping" if isinstance(dtype, pl.Struct) else "null" if dtype == pl.Null else "other"


@dataclass
class _Form:
    """The record that stands for all of its form, under our names."""

    values: Mapping[str, Any]
    contract: RolloutContract
    nulls: bool
    wanted: dict[tuple[str, ...], Any] = field(default_factory=dict)
    rules: list[pl.Expr] = field(default_factory=list)

    def kind(self, name: str) -> str:
        if name not in self.values:
            return "absent"
        value = self.values[name]
        return kind_of_column(value) if self.nulls else kind_of(value)

    def column(self, name: str, kind: str, inner: str = "") -> pl.Expr:
        """Ask for a column, or a field of a mapping, with an explicit type."""
        path = tuple(self.contract.schema.label(name).split(".")) + ((inner,) if inner else ())
        new = path not in self.wanted
        self.wanted[path] = _TYPES[kind]
        expression = pl.col(path[0])
        for part in path[1:]:
            expression = expression.struct.field(part)
        if self.nulls:
            # A table has types of its own, and what JSON cannot hold: nulls and NaN among the numbers.
            expression = expression.cast(_TYPES[kind], strict=False)
            if new and kind in ("ids", "numbers"):
                self.rules.append(expression.list.drop_nulls().list.len() == expression.list.len())
            if new and kind == "numbers":
                self.rules.append(expression.list.sum().is_finite())
        return expression

    def missing(self, name: str) -> bool:
        """Say whether a field is not there; one that is required must be."""
        if self.kind(name) not in _NONE:
            return False
        if name in self.contract.schema.required:
            raise _Doubt
        return True

    def only(self, name: str, *kinds: str) -> str:
        """Return the kind of a field that is there, if it is one of these."""
        kind = self.kind(name)
        if kind not in kinds:
            raise _Doubt
        return kind


def _check_ids(form: _Form) -> None:
    if form.kind("error") not in _NONE:
        form.only("error", "text")
        form.rules.append(form.column("error", "text") == "")
    for name in _IDS:
        if form.missing(name):
            continue
        kind = form.only(name, "text", "whole")
        ids = form.column(name, kind)
        # A text that begins with a printable ASCII character is not blank.
        form.rules.append((ids >= "!") & (ids < "\x7f") if kind == "text" else ids >= 0)


def _check_lag(form: _Form, version: pl.Expr) -> None:
    limits = form.contract.limits
    newest = limits.published_version if limits.published_version is not None else limits.trainer_version
    if newest is None:
        return
    form.rules.append(version <= newest)
    trainer = limits.trainer_version if limits.trainer_version is not None else newest
    if limits.max_policy_lag is not None:
        form.rules.append(version >= trainer - limits.max_policy_lag)


def _check_version(form: _Form) -> None:
    if not form.missing("policy_version"):
        form.only("policy_version", "whole")
        version = form.column("policy_version", "whole")
        form.rules.append(version >= 0)
        _check_lag(form, version)


def _check_lists(form: _Form) -> None:
    """Prompt, response, log-probabilities, masks, versions per token: what of them is there."""
    limits = form.contract.limits
    tokens: dict[str, pl.Expr] = {}
    for name in ("prompt_tokens", "response_tokens"):
        if form.missing(name):
            continue
        form.only(name, "ids")
        tokens[name] = form.column(name, "ids")
        form.rules += [tokens[name].list.len() > 0, tokens[name].list.min() >= 0]
        if limits.vocabulary_size is not None:
            form.rules.append(tokens[name].list.max() < limits.vocabulary_size)
    response = tokens.get("response_tokens")
    extra = ("loss_mask", "tool_mask", "token_versions", "teacher_logprobs")
    there = [name for name in extra if not form.missing(name)]
    if "teacher_logprobs" in there or len({"loss_mask", "tool_mask"} & set(there)) > 1:
        raise _Doubt
    if form.kind("behavior_logprobs") != "absent" or "behavior_logprobs" in form.contract.schema.required:
        form.only("behavior_logprobs", "ids", "numbers")
        logprobs = form.column("behavior_logprobs", "numbers")
        # Zeros are looked at singly, and so is what rounding put above 0.
        last = logprobs.list.last() != 0
        masked = "loss_mask" in there or "tool_mask" in there
        most = logprobs.list.max()
        form.rules += [logprobs.list.min() > -1000.0, most < 0 if masked else (most <= 1e-6) & last]
        if response is not None:
            form.rules.append(logprobs.list.len() == response.list.len())
    for name in there:
        if response is None:
            raise _Doubt
        form.only(name, "ids")
        values = form.column(name, "ids")
        form.rules += [values.list.len() == response.list.len(), values.list.min() >= 0]
        if name == "token_versions":
            oldest = values.list.min()
            form.rules.append(values.list.diff().list.min().fill_null(0) >= 0)
            if form.kind("policy_version") == "absent":
                _check_lag(form, oldest)
            elif form.kind("policy_version") == "whole":
                form.rules.append(oldest == form.column("policy_version", "whole"))
        else:
            form.rules.append(values.list.max() == 1)
    if limits.max_context_tokens is not None and tokens:
        total = pl.sum_horizontal(each.list.len() for each in tokens.values())
        form.rules.append(total <= limits.max_context_tokens)


def _inner_kind(form: _Form, settings: Mapping[str, Any], name: str) -> str:
    if name not in settings:
        return "absent"
    return kind_of_column(settings[name]) if form.nulls else kind_of(settings[name])


def _check_decoding(form: _Form) -> None:
    if form.kind("decoding") == "absent" and "decoding" not in form.contract.schema.required:
        return
    form.only("decoding", "mapping")
    settings = _fields(form, "decoding")
    number = ("whole", "number")
    if _inner_kind(form, settings, "temperature") not in number:
        raise _Doubt
    temperature = form.column("decoding", "number", "temperature")
    form.rules.append((temperature > 0) & temperature.is_finite())
    recorded = ("logprobs_mode", "sampling_mask", "kept_token_ids")
    exempt = not form.nulls and any(name in settings or name in form.values for name in recorded)
    for name in ("top_p", "top_k", "min_p", "logprobs_temperature"):
        kind = _inner_kind(form, settings, name)
        if kind in _NONE:
            continue
        if kind not in (("whole",) if name == "top_k" else number):
            raise _Doubt
        value = form.column("decoding", "whole" if name == "top_k" else "number", name)
        if name == "top_k":
            form.rules.append(value >= -1 if exempt else (value == -1) | (value == 0))
        elif name == "logprobs_temperature":
            form.rules.append(value == temperature)
        elif name == "top_p":
            form.rules.append((value > 0) & (value <= 1) if exempt else value == 1)
        else:
            form.rules.append((value >= 0) & (value <= 1) if exempt else value == 0)


def _fields(form: _Form, name: str) -> Mapping[str, Any]:
    value = form.values[name]
    if form.nulls:
        return {part.name: part.dtype for part in value.fields}
    found: Mapping[str, Any] = value
    return found


def _check_reward(form: _Form) -> pl.Expr | None:
    """Return the reward as one number: the sum of those of a mapping."""
    if form.missing("reward"):
        return None
    kind = form.only("reward", "whole", "number", "mapping")
    if kind != "mapping":
        reward = form.column("reward", "number")
        form.rules.append(reward.is_finite())
        return reward
    parts = []
    for name, value in _fields(form, "reward").items():
        if (kind_of_column(value) if form.nulls else kind_of(value)) not in ("whole", "number"):
            raise _Doubt
        parts.append(form.column("reward", "number", name))
        form.rules.append(parts[-1].is_finite())
    if not parts:
        raise _Doubt
    return pl.sum_horizontal(parts)


def _check_stop(form: _Form) -> None:
    if form.missing("stop_reason"):
        return
    form.only("stop_reason", "text")
    stop = form.column("stop_reason", "text")
    form.rules.append(stop.is_in(_STOPS))
    eos = form.contract.limits.eos_token_ids
    if not eos or form.kind("response_tokens") in _NONE:
        return
    response = form.column("response_tokens", "ids")
    ended = response.list.last().is_in(sorted(eos))
    form.rules.append(pl.when(stop.str.to_lowercase() == "eos").then(ended).otherwise(True))
    form.rules.append(~(stop.is_in(_LENGTHS) & ended))
    if form.kind("loss_mask") in _NONE and form.kind("tool_mask") in _NONE:
        inside = pl.sum_horizontal(response.list.count_matches(token) for token in sorted(eos))
        form.rules.append(inside == ended.cast(pl.UInt32))


def _check_rest(form: _Form) -> None:
    if form.contract.limits.encode is not None or form.kind("turns") not in _NONE:
        raise _Doubt
    if form.kind("messages") not in _NONE:
        # In one form all messages have the same keys and kinds, so one with content means all have it.
        messages = form.values["messages"]
        if form.nulls or not isinstance(messages, list):
            raise _Doubt
        if not all(isinstance(each, dict) and each.get("content") is not None for each in messages):
            raise _Doubt


def _typed(wanted: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return the columns' types, those of mappings as structs."""
    tree: dict[str, Any] = {}
    for path, dtype in wanted.items():
        place = tree
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = dtype

    def made(part: Any) -> Any:
        return (
            pl.Struct({name: made(each) for name, each in part.items()}) if isinstance(part, dict) else part
        )

    return {name: made(part) for name, part in tree.items()}


def make_screen(
    record: Mapping[str, Any], contract: RolloutContract, *, nulls: bool = False
) -> Screen | None:
    """Make the screen for all records of the form of this one.

    Parameters
    ----------
    record : mapping
        A record as it came from JSON; with `nulls`, names of columns to their types instead.
    contract : RolloutContract
        The rules and their limits.
    nulls : bool
        Whether the records are rows of a table with types of its own, in which a null means "not there"; a
        record with one is looked at singly.

    Returns
    -------
    Screen or None
        None where every record of the form has to be looked at by itself.

    Examples
    --------
    >>> minimal = RolloutContract(schema="minimal")
    >>> record = {"rollout_id": "a", "policy_version": 3, "completion_token_ids": [5, 2]}
    >>> make_screen(record, minimal) is None  # a required field is not there
    True
    >>> list(make_screen({**record, "completion_logprobs": [-0.5, -0.25]}, minimal).columns)
    ['rollout_id', 'policy_version', 'completion_token_ids', 'completion_logprobs']
    """
    schema = contract.schema
    if schema.derive is not None and schema.derive(record):
        return None  # what is derived is not a column; of some forms nothing is
    values = _columns_read(record, contract) if nulls else schema.read(record)
    form = _Form(values, contract, nulls)
    decoding = _Form(values, contract, nulls)
    try:
        _check_ids(form)
        _check_version(form)
        _check_lists(form)
        _check_decoding(decoding)
        reward = _check_reward(form)
        _check_stop(form)
        _check_rest(form)
    except _Doubt:
        return None
    if not form.wanted and not decoding.wanted:
        return None
    found, kinds, group = _extracted(form, reward)
    space = _extracted_space(decoding)

    def screen(forms: tuple[_Form, ...], values: dict[str, pl.Expr], **parts: Screen) -> Screen:
        wanted = {path: dtype for each in forms for path, dtype in each.wanted.items()}
        rules = [rule for each in forms for rule in each.rules]
        return Screen(_typed(wanted), pl.all_horizontal(rules), values, kinds, group, **parts)

    parts = {}
    if form.wanted and decoding.wanted:
        parts = {"settings": screen((decoding,), space), "rest": screen((form,), found)}
    return screen((form, decoding), {**found, **space}, **parts)


def _columns_read(columns: Mapping[str, Any], contract: RolloutContract) -> Mapping[str, Any]:
    """Return types of columns under our names, those inside structs too."""

    def as_tree(dtype: Any) -> Any:
        if isinstance(dtype, pl.Struct):
            return {part.name: part.dtype for part in dtype.fields}
        return dtype

    tree = {name: as_tree(dtype) for name, dtype in columns.items()}
    found = dict(contract.schema.read(tree))
    for name, value in found.items():
        if isinstance(value, dict):
            found[name] = pl.Struct(value)
    return found


def _extracted(form: _Form, reward: pl.Expr | None) -> tuple[dict[str, pl.Expr], dict[str, str], str]:
    """Return what else is taken from each record, the kinds of ids, and where the group is from."""
    values, kinds = {}, {}
    group = "group_id" if form.kind("group_id") not in _NONE else "prompt_id"
    for part, name in (("sample", "sample_id"), ("group", group), ("episode", "episode_id")):
        kind = form.kind(name)
        if kind not in _NONE:
            values[part], kinds[part] = form.column(name, kind), kind
    if form.kind("verifier_version") == "text":
        values["verifier"] = form.column("verifier_version", "text")
    if form.kind("policy_version") == "whole":
        values["version"] = form.column("policy_version", "whole")
    elif form.kind("token_versions") == "ids":
        values["version"] = form.column("token_versions", "ids").list.min()
    if reward is not None:
        values["reward"] = reward
    if form.kind("response_tokens") == "ids":
        values["tokens"] = form.column("response_tokens", "ids").list.len()
    return values, kinds, group


def _extracted_space(form: _Form) -> dict[str, pl.Expr]:
    """Return the temperature by which the batch rules tell one way of sampling from another."""
    if form.kind("decoding") == "mapping":
        settings = _fields(form, "decoding")
        named = "logprobs_temperature" if "logprobs_temperature" in settings else "temperature"
        if _inner_kind(form, settings, named) in ("whole", "number"):
            return {"space": form.column("decoding", "number", named)}
    return {}
