"""How other systems name the fields of a rollout record, so that one set of rules checks them all.

A schema says where each of our fields lies in a system's own record, and which fields it must have. Findings
then name the system's own fields. Field names are those of the systems' public record types; what a system
does not record is not required of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._arguments import choice
from ..errors import Words

REQUIRED = (
    "sample_id",
    "prompt_id",
    "policy_version",
    "prompt_tokens",
    "response_tokens",
    "behavior_logprobs",
    "decoding",
    "reward",
    "stop_reason",
    "verifier_version",
)
OPTIONAL = (
    "loss_mask",
    "tool_mask",
    "token_versions",
    "teacher_logprobs",
    "group_id",
    "episode_id",
    "error",
    "messages",
    "turns",
    "response_text",
    "logprobs_mode",
)
_TOKENS = ("prompt_tokens", "response_tokens", "behavior_logprobs")


@dataclass(frozen=True)
class RecordSchema:
    """Where a system keeps our fields.

    Attributes
    ----------
    name : str
        The system.
    fields : dict
        Our field name to the system's; a dot goes into an inner mapping. Empty: the names are ours.
    required : tuple of str
        Which of our fields a record must have.
    derive : callable, optional
        Reads what renaming cannot express; takes the record, gives our fields.
    """

    name: str
    fields: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = REQUIRED
    derive: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def read(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the record under our names.

        Examples
        --------
        >>> schema_named("trl").read({"completion_ids": [5, 2]})
        {'response_tokens': [5, 2]}
        """
        if not self.fields:
            return record
        ours: dict[str, Any] = {}
        for name, path in self.fields.items():
            value: Any = record
            for part in path.split("."):
                if not isinstance(value, Mapping) or part not in value:
                    break
                value = value[part]
            else:
                ours[name] = value
        if self.derive is not None:
            ours.update(self.derive(record))
        return ours

    def label(self, name: str) -> str:
        """Return the system's own name of one of our fields.

        Examples
        --------
        >>> schema_named("verl").label("reward")
        'reward_score'
        """
        return self.fields.get(name, name)


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
)
SCHEMA_NAMES = tuple(schema.name for schema in _SCHEMAS)


def schema_named(name: str) -> RecordSchema:
    """Find a schema by its system's name.

    Parameters
    ----------
    name : str
        One of ``SCHEMA_NAMES``.

    Returns
    -------
    RecordSchema

    Raises
    ------
    ConfigError
        If there is no such schema.

    Examples
    --------
    >>> schema_named("areal").label("token_versions")
    'output_versions'
    """
    choice("schema", name, SCHEMA_NAMES, way_out="Rename the fields before the check.")
    return next(schema for schema in _SCHEMAS if schema.name == name)


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
