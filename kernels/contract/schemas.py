"""How other systems name the fields of a rollout record, so that one set of rules checks them all.

A schema says where each of our fields lies in a system's own record, and which fields it must have. Findings
then name the system's own fields. Field names are those of the systems' public record types; what a system
does not record is not required of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._arguments import choice, is_number
from ..errors import ConfigError, Words
from .record_schema import OPTIONAL, REQUIRED, RecordSchema

_TOKENS = ("prompt_tokens", "response_tokens", "behavior_logprobs")


def _slime_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Split slime's joint token list at ``response_length``; drop nulls that mean "not recorded"."""
    ours: dict[str, Any] = {}
    tokens, length = record.get("tokens"), record.get("response_length")
    if isinstance(tokens, list | tuple) and type(length) is int and 0 <= length <= len(tokens):
        ours["prompt_tokens"] = tokens[: len(tokens) - length]
        ours["response_tokens"] = tokens[len(tokens) - length :]
    else:
        ours["prompt_tokens"] = ours["response_tokens"] = Words("tokens that response_length cannot split")
    versions = record.get("weight_versions")
    if isinstance(versions, list | tuple) and versions:
        # slime stamps each generation call with a text; the oldest call is the record's version.
        numbers = [int(v) if isinstance(v, str) and v.isdecimal() and len(v) < 19 else v for v in versions]
        # One stamp that cannot be read may be of any age, so it is what the record is judged by.
        unread = [v for v in numbers if type(v) is not int]
        ours["policy_version"] = unread[0] if unread else min(numbers)
    return ours


def _split(joint: Any, length: int) -> tuple[Any, Any]:
    """Cut a list of prompt and response before the last `length` of its members."""
    if not isinstance(joint, list | tuple) or not 0 <= length <= len(joint):
        words = Words("a list that cannot be split into prompt and response")
        return words, words
    return joint[: len(joint) - length], joint[len(joint) - length :]


def _openrlhf_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Split OpenRLHF's sequence: the mask over actions is as long as what follows the prompt."""
    mask = record.get("action_mask")
    length = len(mask) if isinstance(mask, list | tuple) else -1
    prompt, response = _split(record.get("sequences"), length)
    return {"prompt_tokens": prompt, "response_tokens": response}


def _masked_fields(tokens: str, mask: str, logprobs: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Split lists over prompt and response alike at the first token that is trained on."""

    def derive(record: Mapping[str, Any]) -> dict[str, Any]:
        lists = {label: record.get(label) for label in (tokens, mask, logprobs)}
        whole = record.get("input_lengths")
        if type(whole) is int and whole >= 0:
            # NeMo RL writes rows that are padded on the right.
            lists = {label: v[:whole] if isinstance(v, list | tuple) else v for label, v in lists.items()}
        joint, active = lists[tokens], lists[mask]
        length = -1
        if isinstance(active, list | tuple) and isinstance(joint, list | tuple) and len(active) == len(joint):
            first = next((place for place, each in enumerate(active) if each), len(active))
            length = len(active) - first
        ours = dict(zip(("prompt_tokens", "response_tokens"), _split(joint, length)))
        for name, label in (("loss_mask", mask), ("behavior_logprobs", logprobs)):
            values = lists[label]
            if length >= 0 and isinstance(values, list | tuple):
                size = len(joint)  # type: ignore[arg-type]
                words = Words(f"a list of {len(values)} for {size} tokens")
                ours[name] = values[size - length :] if len(values) == size else words
        return ours

    return derive


def _skyrl_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Sum SkyRL's rewards where there is one per token."""
    reward = record.get("rewards")
    if isinstance(reward, list | tuple) and reward and all(is_number(each) for each in reward):
        return {"reward": sum(reward)}
    return {}


_SCHEMAS = (
    RecordSchema("lagsweep"),
    RecordSchema(
        "minimal",
        {
            "sample_id": "rollout_id",
            "prompt_tokens": "prompt_token_ids",
            "response_tokens": "completion_token_ids",
            "behavior_logprobs": "completion_logprobs",
            "loss_mask": "completion_mask",
            "policy_version": "policy_version",
            "token_versions": "token_versions",
        },
        ("sample_id", "response_tokens", "behavior_logprobs", "policy_version"),
    ),
    RecordSchema(
        "verl",
        {
            "prompt_id": "uid",
            "prompt_tokens": "prompt_ids",
            "response_tokens": "response_ids",
            "loss_mask": "response_mask",
            "behavior_logprobs": "response_logprobs",
            "reward": "reward_score",
            "stop_reason": "stop_reason",
            "policy_version": "extra_fields.min_global_steps",
            "logprobs_mode": "extra_fields.logprobs_mode",
        },
        (*_TOKENS, "loss_mask", "reward", "policy_version"),
    ),
    RecordSchema(
        "trl",
        {
            "prompt_id": "group_id",
            "prompt_tokens": "prompt_ids",
            "response_tokens": "completion_ids",
            "tool_mask": "tool_mask",
            "behavior_logprobs": "sampling_per_token_logps",
            "policy_version": "model_version",
        },
        _TOKENS,
    ),
    RecordSchema(
        "areal",
        {
            "prompt_tokens": "input_tokens",
            "response_tokens": "output_tokens",
            "behavior_logprobs": "output_logprobs",
            "token_versions": "output_versions",
            "stop_reason": "stop_reason",
            "reward": "reward",
        },
        (*_TOKENS, "token_versions", "stop_reason"),
    ),
    RecordSchema(
        "slime",
        {
            "sample_id": "index",
            "prompt_id": "group_index",
            "prompt_tokens": "tokens",
            "response_tokens": "tokens",
            "loss_mask": "loss_mask",
            "behavior_logprobs": "rollout_log_probs",
            "policy_version": "weight_versions",
            "reward": "reward",
            "stop_reason": "status",
        },
        (*_TOKENS, "policy_version", "reward", "stop_reason"),
        _slime_fields,
    ),
    RecordSchema(
        "openrlhf",
        {
            "sample_id": "index",
            "prompt_tokens": "sequences",
            "response_tokens": "sequences",
            "behavior_logprobs": "rollout_log_probs",
            "loss_mask": "action_mask",
            "reward": "rewards",
        },
        (*_TOKENS, "loss_mask", "reward"),
        _openrlhf_fields,
    ),
    RecordSchema(
        "nemo_rl",
        {
            "prompt_tokens": "token_ids",
            "response_tokens": "token_ids",
            "behavior_logprobs": "generation_logprobs",
            "loss_mask": "token_loss_mask",
            "reward": "rewards",
        },
        (*_TOKENS, "loss_mask", "reward"),
        _masked_fields("token_ids", "token_loss_mask", "generation_logprobs"),
    ),
    RecordSchema(
        "prime_rl",
        {
            "prompt_tokens": "token_ids",
            "response_tokens": "token_ids",
            "behavior_logprobs": "logprobs",
            "loss_mask": "mask",
        },
        (*_TOKENS, "loss_mask"),
        _masked_fields("token_ids", "mask", "logprobs"),
    ),
    RecordSchema(
        "skyrl",
        {
            "prompt_tokens": "prompt_token_ids",
            "response_tokens": "response_ids",
            "behavior_logprobs": "rollout_logprobs",
            "loss_mask": "loss_masks",
            "reward": "rewards",
            "stop_reason": "stop_reasons",
        },
        (*_TOKENS, "loss_mask", "reward"),
        _skyrl_fields,
    ),
)
SCHEMA_NAMES = tuple(schema.name for schema in _SCHEMAS)


def schema_named(name: str | Mapping[str, str]) -> RecordSchema:
    """Find a schema by its system's name, or make one from a map of columns.

    Parameters
    ----------
    name : str or mapping
        One of ``SCHEMA_NAMES``, or our field names to those of the records; a dot goes into an inner mapping.
        Of a map, every field is required that our own records must have.

    Returns
    -------
    RecordSchema

    Raises
    ------
    ConfigError
        If there is no such schema, or a map names a field that is none of ours.

    Examples
    --------
    >>> schema_named({"sample_id": "id", "reward": "score.total"}).required
    ('sample_id', 'reward')
    >>> schema_named("areal").label("token_versions")
    'output_versions'
    """
    if isinstance(name, Mapping):
        return _mapped(name)
    choice("schema", name, SCHEMA_NAMES, way_out="Rename the fields before the check.")
    return next(schema for schema in _SCHEMAS if schema.name == name)


def _mapped(columns: Mapping[str, str]) -> RecordSchema:
    for ours, theirs in columns.items():
        choice("columns", ours, (*REQUIRED, *OPTIONAL), way_out="Name our field first: sample_id=id.")
        if not isinstance(theirs, str) or not theirs:
            way_out = "Give the record's own name, as sample_id=id."
            raise ConfigError(f"columns.{ours}", "must be the name of a field", theirs, way_out)
    if not columns:
        raise ConfigError("columns", "must name a field", dict(columns), "Give one, as sample_id=id.")
    required = tuple(name for name in REQUIRED if name in columns)
    return RecordSchema("columns", dict(columns), required)


def detect_schema(record: Mapping[str, Any]) -> str:
    """Tell whose field names a record has.

    Parameters
    ----------
    record : mapping

    Returns
    -------
    str
        The one schema all of whose required fields the record has, and most of them.

    Raises
    ------
    ConfigError
        If it is none, or could be several.

    Examples
    --------
    >>> detect_schema({"prompt_ids": [2], "completion_ids": [5], "sampling_per_token_logps": [-0.5]})
    'trl'
    """

    def labels(schema: RecordSchema) -> set[str]:
        return {schema.label(name).split(".")[0] for name in schema.required}

    fitting = [schema for schema in _SCHEMAS if all(label in record for label in labels(schema))]
    most = max((len(labels(schema)) for schema in fitting), default=0)
    best = [schema.name for schema in fitting if len(labels(schema)) == most]
    if len(best) == 1:
        return best[0]
    rule = "must have the field names of one system to be told by them"
    got = Words(f"those of {' and '.join(best)}" if best else "those of none")
    raise ConfigError("shape", rule, got, f"Name it: {', '.join(SCHEMA_NAMES)}; or map the columns.")


def better_schema(schema: RecordSchema, record: Mapping[str, Any]) -> RecordSchema | None:
    """Find the schema whose field names a record has, when it has more of them than of the schema asked for.

    Parameters
    ----------
    schema : RecordSchema
        The schema asked for.
    record : mapping
        The record.

    Returns
    -------
    RecordSchema or None
        The one with most of its names in the record; None where the schema asked for has as many.

    Examples
    --------
    >>> better_schema(schema_named("lagsweep"), {"completion_ids": [5], "prompt_ids": [2]}).name
    'trl'
    >>> better_schema(schema_named("lagsweep"), {"response_tokens": [5], "prompt_ids": [2]})
    """

    def names_there(candidate: RecordSchema) -> int:
        return sum(label in record for label in {candidate.label(name) for name in candidate.required})

    best = max(_SCHEMAS, key=names_there)
    return best if names_there(best) > names_there(schema) else None
