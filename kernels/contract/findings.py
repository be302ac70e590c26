"""What a check of rollout records finds: sentences that carry a code, a path and a severity.

A finding is a string, so a list of findings prints and joins like plain messages, and beside it stands
what a program needs. ``RULES`` names every code, its severity and what it means.
"""

from __future__ import annotations

from typing import Any

from .._arguments import instance
from ..errors import Finding, Words

ERROR = "error"
WARNING = "warning"

RULES: dict[str, tuple[str, str]] = {
    "record_type": (ERROR, "a record is a mapping"),
    "record_error": (ERROR, "a record that reports an error is not trained on"),
    "missing_field": (ERROR, "every required field is there"),
    "id_type": (ERROR, "an id is a text that is not empty, or a whole number"),
    "version_type": (ERROR, "a version is a whole number of 0 or more"),
    "version_unpublished": (ERROR, "no record is newer than the published version"),
    "lag_over_limit": (ERROR, "the lag is within the limit"),
    "tokens_type": (ERROR, "tokens are one flat list"),
    "token_id": (ERROR, "a token id is an integer"),
    "token_range": (ERROR, "a token id lies in the vocabulary"),
    "prompt_empty": (ERROR, "a prompt has tokens"),
    "response_empty": (ERROR, "a response has tokens"),
    "context_length": (ERROR, "prompt and response fit the context"),
    "logprobs_type": (ERROR, "log-probabilities are one flat list"),
    "logprob_length": (ERROR, "there is one log-probability per response token"),
    "logprob_null": (ERROR, "no log-probability is null"),
    "logprob_number": (ERROR, "a log-probability is a number"),
    "logprob_finite": (ERROR, "a log-probability is finite"),
    "logprob_positive": (ERROR, "a log-probability is at most 0, but for rounding"),
    "logprob_marker": (ERROR, "a log-probability is not a marker such as -9999"),
    "mask_type": (ERROR, "a mask is one flat list of 0 and 1"),
    "mask_length": (ERROR, "a mask has one entry per response token"),
    "token_versions": (ERROR, "there is one whole version per response token"),
    "teacher_length": (ERROR, "teacher log-probabilities cover prompt and response"),
    "decoding_type": (ERROR, "decoding is a mapping of settings"),
    "temperature": (ERROR, "the temperature is a number above 0"),
    "top_p": (ERROR, "top_p lies above 0 and at most 1"),
    "top_k": (ERROR, "top_k is a whole number of -1 or more"),
    "min_p": (ERROR, "min_p lies between 0 and 1"),
    "reward_null": (ERROR, "a reward is not null"),
    "reward_type": (ERROR, "a reward is a number, or a mapping of numbers"),
    "reward_empty": (ERROR, "a reward mapping is not empty"),
    "reward_finite": (ERROR, "a reward is finite"),
    "stop_type": (ERROR, "a stop reason is a text"),
    "stop_unknown": (ERROR, "a stop reason is one that is known"),
    "stop_untrainable": (ERROR, "an aborted or failed rollout is not trained on"),
    "stop_mismatch": (ERROR, "a response that stopped at EOS ends in one"),
    "message_content": (ERROR, "an assistant message has content or tool calls"),
    "turns_type": (ERROR, "turns are a list of mappings with prompt and response tokens"),
    "turn_prefix": (ERROR, "the next turn's prompt begins with the sampled ids"),
    "duplicate_sample_id": (ERROR, "a sample id occurs once in a batch"),
    "group_size": (ERROR, "a group has all its rollouts"),
    "episode_incomplete": (ERROR, "an episode is trained on as a whole"),
    "logprobs_all_zero": (WARNING, "log-probabilities that are all 0 look like a fill value"),
    "last_logprob_zero": (WARNING, "a last active token of probability 1 looks appended"),
    "truncated_sampling": (WARNING, "top-p, top-k or min-p change the ratios unless the mode is recorded"),
    "logprob_temperature": (WARNING, "log-probabilities refer to the sampling temperature"),
    "tokens_after_eos": (WARNING, "nothing follows the first EOS of a single turn"),
    "length_but_eos": (WARNING, "a response cut for length does not end in EOS"),
    "tool_mask_outside": (WARNING, "the tool mask is active only where the loss mask is"),
    "nothing_trained": (WARNING, "a record has tokens to train on"),
    "version_not_oldest": (WARNING, "a record's version is that of its oldest token"),
    "versions_decrease": (WARNING, "token versions never go back"),
    "retokenization_drift": (WARNING, "encoding the text again gives the sampled ids"),
    "group_of_one": (WARNING, "a group has more than one rollout"),
    "mixed_temperature": (WARNING, "a batch refers to one temperature"),
    "mixed_verifier": (WARNING, "a batch was scored by one verifier version"),
}


class ContractFinding(str):
    """A sentence about one broken rule, with what a program needs beside it.

    Attributes
    ----------
    code : str
        The rule's name, a key of ``RULES``.
    path : str
        Where it is broken, such as ``behavior_logprobs[3]`` or ``records[2].sample_id``.
    parts : Finding
        The sentence's parts, as an error carries them.
    severity : str
        ``"error"`` or ``"warning"``.
    occurrences : int
        How many values at this field break the rule; the sentence shows the first.

    Examples
    --------
    >>> found = make_finding("prompt_empty", "prompt_tokens", "must hold a token", [], "Keep the prompt.")
    >>> found, found.code, found.severity
    ('prompt_tokens: must hold a token (got []). Keep the prompt.', 'prompt_empty', 'error')
    """

    parts: Finding
    code: str
    path: str
    severity: str
    occurrences: int

    def __new__(cls, parts: Finding, code: str, severity: str, occurrences: int = 1) -> ContractFinding:
        """Make the string and attach what belongs to it."""
        instance("parts", parts, Finding, "Give the sentence's parts as a Finding.")
        finding = super().__new__(cls, str(parts))
        finding.parts, finding.path = parts, parts.field
        finding.code, finding.severity, finding.occurrences = code, severity, occurrences
        return finding

    def __reduce__(self) -> tuple[type[ContractFinding], tuple[Finding, str, str, int]]:
        """Let copy and pickle keep the attributes."""
        return type(self), (self.parts, self.code, self.severity, self.occurrences)

    def within(self, place: str) -> ContractFinding:
        """Return the same finding with a place before its path."""
        return type(self)(self.parts.within(place), self.code, self.severity, self.occurrences)

    @property
    def field(self) -> str:
        """The record's field at the path's beginning, without index or inner name."""
        inner = self.path.split("].", 1)[1] if self.path.startswith("records[") else self.path
        return inner.split("[", 1)[0].split(".", 1)[0]

    def as_dict(self) -> dict[str, Any]:
        """Return code, path, severity, occurrences and text for machines."""
        return {
            "code": self.code,
            "path": self.path,
            "severity": self.severity,
            "occurrences": self.occurrences,
            "message": str(self),
        }


def shown(value: Any) -> str:
    """Write a value for a sentence, cut where it is long; never fails.

    Examples
    --------
    >>> shown([1, 2]), shown(list(range(100)))
    ('[1, 2]', 'a list of 100')
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes) and len(value) > 80:
        return f"{value[:60]!r} and {len(value) - 60} more"
    if isinstance(value, list | tuple | dict) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        return repr(value)
    except Exception:
        # A foreign object's repr may do anything; a validator must still report it.
        return f"a {type(value).__name__}"


def make_finding(
    code: str, path: str, rule: str, value: Any, way_out: str, *, occurrences: int = 1
) -> ContractFinding:
    """Build a finding in the wording of all errors: path, rule, value, way out.

    Examples
    --------
    >>> make_finding("temperature", "decoding.temperature", "must be above 0", 0, "Sample.").path
    'decoding.temperature'
    """
    parts = Finding(path, rule, value if isinstance(value, Words) else _kept(value), way_out)
    return ContractFinding(parts, code, RULES[code][0], occurrences)


def _kept(value: Any) -> Any:
    """Keep a short plain value as it is, the words that show it of any other: a record is not held on to."""
    words = shown(value)
    plain = value is None or type(value) in (bool, int, float, str)
    return value if plain and len(words) < 80 and words == repr(value) else Words(words)
