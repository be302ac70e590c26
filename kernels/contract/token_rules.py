"""The rules for a record's lists: token ids, log-probabilities, masks, versions per token, and turns.

Rules over long lists look at all values at once and only go value by value when something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .._arguments import is_number, is_whole
from ..errors import Words, many
from .findings import shown
from .record import RecordCheck, all_whole, check_lag, flat_list, is_finite

# float32 log-softmax may round a probability of 1 to slightly above 0.
_ROUNDING = 1e-6
# No sampler draws a token of probability e^-1000; engines write -9999 for "not among the top k".
_MARKER = -1000.0


def check_tokens(check: RecordCheck, name: str, empty_code: str) -> list[Any] | None:
    """Check one list of token ids; give it back when it is a list."""
    if not check.required(name):
        return None
    value = check.get(name)
    tokens = flat_list(value)
    if tokens is None:
        if value is not None or name in check.schema.required:
            check.add(
                "tokens_type", name, "must be one flat list of token ids", value, "Keep the sampled ids."
            )
        return None
    if not tokens:
        way_out = "Drop the record." if empty_code == "response_empty" else "Keep the ids that were sent."
        check.add(empty_code, name, "must hold at least one token", tokens, way_out)
        return tokens
    size = check.limits.vocabulary_size
    if set(map(type, tokens)) == {int} and min(tokens) >= 0 and (size is None or max(tokens) < size):
        return tokens
    wrong = [i for i, token in enumerate(tokens) if not is_whole(token)]
    check.add_all("token_id", name, "must be an integer", tokens, wrong, "Keep the sampled ids.")
    limit = math.inf if size is None else size
    outside = [i for i, token in enumerate(tokens) if is_whole(token) and not 0 <= token < limit]
    rule = "must be 0 or more" if size is None else f"must lie between 0 and {size - 1}"
    check.add_all("token_range", name, rule, tokens, outside, "Labels such as -100 belong in a mask.")
    return tokens


def check_lengths(check: RecordCheck, prompt: list[Any] | None, response: list[Any] | None) -> None:
    """Check what must be as long as the response, or as prompt and response together."""
    if response is None:
        return
    total = len(response) + len(prompt or [])
    limit = check.limits.max_context_tokens
    if limit is not None and total > limit:
        rule = f"must fit the context of {limit} tokens together with the prompt"
        check.add("context_length", "response_tokens", rule, total, "Budget the turns together.")
    versions = check.get("token_versions")
    if versions is not None:
        _check_token_versions(check, versions, len(response))
    elif "token_versions" in check.schema.required:
        check.required("token_versions")
    teacher = check.get("teacher_logprobs")
    if teacher is not None:
        values = flat_list(teacher)
        if values is None or len(values) != total:
            rule = f"must be a flat list of {total} values, one per prompt and response token"
            got = teacher if values is None else Words(many(len(values), "value"))
            check.add("teacher_length", "teacher_logprobs", rule, got, "Score prompt and response together.")


def _check_token_versions(check: RecordCheck, value: Any, length: int) -> None:
    """Check versions per token; the sequence's lag goes by the oldest of them."""
    versions = flat_list(value)
    if versions is None or len(versions) != length:
        got = value if versions is None else Words(many(len(versions), "value"))
        rule = f"must be a flat list of {length} versions, one per response token"
        check.add("token_versions", "token_versions", rule, got, "Stamp each token as it is sampled.")
        return
    wrong = [i for i, version in enumerate(versions) if not is_whole(version) or version < 0]
    rule = "must be a whole number of 0 or more"
    check.add_all("token_versions", "token_versions", rule, versions, wrong, "Stamp each token as sampled.")
    if wrong or not versions:
        return
    oldest = min(versions)
    back = [i for i in range(1, len(versions)) if versions[i] < versions[i - 1]]
    way_out = "Weights only move forward; look for a stale engine."
    rule = "must not be older than the token before"
    check.add_all("versions_decrease", "token_versions", rule, versions, back, way_out)
    stated = check.get("policy_version")
    if "policy_version" not in check.values:
        check_lag(check, "token_versions", int(oldest))
    elif is_whole(stated) and stated != oldest:
        rule = f"should be {shown(oldest)}, the version of the oldest token"
        way_out = "The lag of a sequence goes by its oldest token."
        check.add("version_not_oldest", "policy_version", rule, stated, way_out)
        # A record stamped with its newest version must not pass the limit by that.
        if stated > oldest:
            check_lag(check, "token_versions", int(oldest))


# -- log-probabilities and masks ---------------------------------------------------------------------------


def check_logprobs(check: RecordCheck, response: list[Any] | None) -> list[Any] | None:
    """Check the behaviour log-probabilities; give them back when each belongs to a token."""
    name = "behavior_logprobs"
    if not check.required(name):
        return None
    value = check.get(name)
    logprobs = flat_list(value)
    if logprobs is None:
        rule = "must be one flat list of log-probabilities"
        check.add("logprobs_type", name, rule, value, "Keep the sampler's own values.")
        return None
    fits = response is None or len(logprobs) == len(response)
    if not fits:
        rule = f"must have one value per response token, {len(response or [])}"
        way_out = "Keep the sampler's ids and values together; never pad, cut or re-tokenise."
        check.add("logprob_length", name, rule, Words(many(len(logprobs), "value")), way_out)
    if not _all_plausible(logprobs):
        _check_each_logprob(check, name, logprobs)
    return logprobs if fits else None


def _all_plausible(values: list[Any]) -> bool:
    """Say in one pass of built-ins whether every value is a plausible log-probability."""
    if not set(map(type, values)) <= {float, int}:
        return False
    try:
        # A finite sum has neither NaN nor infinity in it, which min and max alone would not show.
        good = math.isfinite(sum(values))
    except OverflowError:
        return False
    return good and (not values or (max(values) <= _ROUNDING and min(values) > _MARKER))


def _check_each_logprob(check: RecordCheck, name: str, values: list[Any]) -> None:
    """Find what is wrong, value by value."""
    kinds: dict[str, list[int]] = {code: [] for code in _LOGPROB_RULES}
    for i, value in enumerate(values):
        if value is None:
            kinds["logprob_null"].append(i)
        elif not is_number(value):
            kinds["logprob_number"].append(i)
        elif not is_finite(value):
            kinds["logprob_finite"].append(i)
        elif value > _ROUNDING:
            kinds["logprob_positive"].append(i)
        elif value <= _MARKER:
            kinds["logprob_marker"].append(i)
    for code, bad in kinds.items():
        rule, way_out = _LOGPROB_RULES[code]
        check.add_all(code, name, rule, values, bad, way_out)


_LOGPROB_RULES = {
    "logprob_null": ("must be a number, not null", "NaN becomes null in JSON; look for it in the engine."),
    "logprob_number": ("must be a number", "Keep the sampler's own values."),
    "logprob_finite": ("must be finite", "A sampled token has a probability above 0; ask the engine."),
    "logprob_positive": ("must be at most 0", "A log-probability above 0 is a probability above 1."),
    "logprob_marker": ("must be the sampled token's own", "Ask the engine for the sampled token's value."),
}


def check_masks(
    check: RecordCheck, response: list[Any] | None, logprobs: list[Any] | None
) -> list[Any] | None:
    """Check loss and tool mask, and what they say about log-probabilities; give the effective mask."""
    loss, tool = (_read_mask(check, name, response) for name in ("loss_mask", "tool_mask"))
    if loss is not None and tool is not None:
        outside = [i for i, (a, b) in enumerate(zip(loss, tool)) if b and not a]
        rule = "should be 0 where the loss mask is 0"
        way_out = "Count by the mask that both share."
        check.add_all("tool_mask_outside", "tool_mask", rule, tool, outside, way_out)
    active = loss if tool is None else tool if loss is None else [a and b for a, b in zip(loss, tool)]
    if active and not any(active):
        name = "loss_mask" if loss is not None else "tool_mask"
        rule = "should leave a token to train on"
        check.add("nothing_trained", name, rule, Words("no active token"), "Drop the record.")
    if logprobs and (active is None or len(active) == len(logprobs)):
        values = logprobs if active is None else [v for v, a in zip(logprobs, active) if a]
        _check_zeros(check, logprobs, values, active)
    return active


def _read_mask(check: RecordCheck, name: str, response: list[Any] | None) -> list[Any] | None:
    value = check.get(name)
    if value is None:
        if name in check.schema.required:
            check.required(name)
        return None
    mask = flat_list(value)
    if mask is None:
        check.add("mask_type", name, "must be one flat list of 0 and 1", value, "Give one entry per token.")
        return None
    wrong = [i for i, entry in enumerate(mask) if not isinstance(entry, int | float) or entry not in (0, 1)]
    check.add_all("mask_type", name, "must be 0 or 1", mask, wrong, "Weights do not belong in a mask.")
    if response is not None and len(mask) != len(response):
        rule = f"must have one entry per response token, {len(response)}"
        way_out = "Let it grow with the response, also when a rollout is resumed."
        check.add("mask_length", name, rule, Words(f"{len(mask)} entries"), way_out)
        return None
    return None if wrong else mask


def _check_zeros(
    check: RecordCheck, logprobs: list[Any], values: list[Any], active: list[Any] | None
) -> None:
    """Suspect log-probabilities of exactly 0: all of them, or the last active token's alone."""
    name = "behavior_logprobs"
    if len(values) > 1 and all(is_number(v) and v == 0 for v in values):
        way_out = "Zeros filled in claim certainty; keep the sampler's own values."
        check.add(
            "logprobs_all_zero", name, "should not all be exactly 0", 0.0, way_out, occurrences=len(values)
        )
        return
    last = len(logprobs) - 1
    if (
        len(values) > 1
        and (active is None or active[last])
        and is_number(logprobs[last])
        and logprobs[last] == 0
    ):
        rule = "should not be exactly 0 for the last active token"
        way_out = "Mask out a token that was appended, not sampled."
        check.add("last_logprob_zero", name, rule, logprobs[last], way_out, inner=f"[{last}]")


# -- turns -------------------------------------------------------------------------------------------------


def check_turns(check: RecordCheck) -> None:
    """Check that each turn's prompt begins with the ids seen and sampled in the turn before."""
    turns = check.get("turns")
    if turns is None:
        return
    if not isinstance(turns, list | tuple):
        rule = "must be a list of turns"
        check.add("turns_type", "turns", rule, turns, "Give prompt_tokens and response_tokens for each.")
        return
    seen: list[Any] = []
    for i, turn in enumerate(turns):
        parts = [
            flat_list(turn.get(name)) if isinstance(turn, Mapping) else None
            for name in ("prompt_tokens", "response_tokens")
        ]
        prompt, response = parts
        if prompt is None or response is None or not all_whole(prompt + response):
            rule = "must have flat lists of ids, prompt_tokens and response_tokens"
            check.add("turns_type", "turns", rule, turn, "Keep the ids of each turn.", inner=f"[{i}]")
            return
        at = first_difference(seen, prompt)
        if at is not None:
            got = prompt[at] if at < len(prompt) else Words("its end")
            rule = f"must begin with the {len(seen)} ids before it; token {at} should be {shown(seen[at])}"
            way_out = "Append the new ids to the sampled ones; do not encode the conversation again."
            check.add("turn_prefix", "turns", rule, got, way_out, inner=f"[{i}].prompt_tokens")
        seen = prompt + response


def first_difference(seen: list[Any], prompt: list[Any]) -> int | None:
    """Find where a prompt departs from the ids it must begin with; None if it begins with them.

    Parameters
    ----------
    seen : list of int
        The ids of the turns before.
    prompt : list of int
        The next prompt.

    Returns
    -------
    int or None
        The first differing position, or the prompt's length when it ends too early.

    Examples
    --------
    >>> first_difference([5, 6, 2], [5, 6, 2, 9]), first_difference([5, 6, 2], [5, 7, 2])
    (None, 1)
    """
    if prompt[: len(seen)] == seen:
        return None
    return next((i for i, (a, b) in enumerate(zip(seen, prompt)) if a != b), len(prompt))
