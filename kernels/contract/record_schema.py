"""Where a record keeps our fields: names, and what renaming cannot express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
        >>> RecordSchema("trl", {"response_tokens": "completion_ids"}).read({"completion_ids": [5, 2]})
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
        >>> RecordSchema("verl", {"reward": "reward_score"}).label("reward")
        'reward_score'
        """
        return self.fields.get(name, name)
