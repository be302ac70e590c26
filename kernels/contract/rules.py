"""The rules for a record's single fields: its error, ids, version, sampling, reward, stop reason, text.

:func:`checked` runs these and the rules for lists; every rule reports, none raises, none stops another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._arguments import is_number, is_whole
from ..errors import Words, nearest
from .findings import make_finding, shown
from .record import ContractLimits, RecordCheck, all_whole, check_lag, flat_list, is_blank, is_finite
from .record_schema import RecordSchema
from .token_rules import (
    check_lengths,
    check_logprobs,
    check_masks,
    check_tokens,
    check_turns,
)

TRAINABLE_STOPS = ("eos", "stop", "length", "truncated", "tool_calls", "completed", "max_turns", "budget")
UNTRAINABLE_STOPS = ("abort", "aborted", "cancelled", "error", "failed", "interrupt", "pending")
LENGTH_STOPS = ("length", "truncated")


# -- identity and versions ---------------------------------------------------------------------------------


def check_error(check: RecordCheck) -> None:
    """Report a failed rollout before anything that follows from it."""
    error = check.get("error")
    if not is_blank(error):
        way_out = "Drop it or retry it; a failure is neither a reward of 0 nor an empty answer."
        check.add("record_error", "error", "must be empty in a record to train on", error, way_out)


def check_ids(check: RecordCheck) -> None:
    """Check sample and prompt ids, and the verifier's version, which is named the same way."""
    for name in ("sample_id", "prompt_id", "verifier_version", "group_id", "episode_id"):
        if name in check.schema.required:
            if not check.required(name):
                continue
        elif check.get(name) is None:
            continue
        value = check.get(name)
        text = isinstance(value, str) and value.strip() != ""
        if not text and not (is_whole(value) and value >= 0):
            rule = "must be a text that is not empty, or a whole number"
            check.add("id_type", name, rule, value, "Name it where the rollout is made.")


def check_version(check: RecordCheck) -> None:
    """Check the behaviour version, and its lag behind the published or the trainer's version."""
    if not check.required("policy_version"):
        return
    version = check.get("policy_version")
    if version is None and "policy_version" not in check.schema.required:
        return
    if not is_whole(version) or version < 0:
        rule = "must be a whole number of 0 or more"
        check.add(
            "version_type", "policy_version", rule, version, "Stamp the version that sampled the tokens."
        )
        return
    check_lag(check, "policy_version", int(version))


# -- sampling, reward, stop --------------------------------------------------------------------------------


def check_decoding(check: RecordCheck) -> None:
    """Check the sampling settings, and whether they leave the ratios what they seem."""
    if not check.required("decoding"):
        return
    decoding = check.get("decoding")
    if not isinstance(decoding, Mapping):
        way_out = "Record at least the temperature."
        check.add("decoding_type", "decoding", "must be a mapping of settings", decoding, way_out)
        return
    temperature = decoding.get("temperature")
    hot = is_number(temperature) and is_finite(temperature) and temperature > 0
    if not hot:
        rule = "must be a finite number above 0"
        way_out = "At 0 decoding is greedy and the log-probabilities are not those of the sampler."
        got = temperature if "temperature" in decoding else Words("nothing")
        check.add("temperature", "decoding", rule, got, way_out, inner=".temperature")
    for name, rule, good in _DECODING_RULES:
        value = decoding.get(name)
        if value is not None and not good(value):
            check.add(name, "decoding", rule, value, "Record what the sampler used.", inner=f".{name}")
    _check_sampling_space(check, decoding, temperature if hot else None)


_DECODING_RULES = (
    (
        "top_p",
        "must be above 0 and at most 1",
        lambda v: is_number(v) and is_finite(v) and 0 < v <= 1,
    ),
    ("top_k", "must be a whole number of -1 or more", lambda v: is_whole(v) and v >= -1),
    ("min_p", "must lie between 0 and 1", lambda v: is_number(v) and is_finite(v) and 0 <= v <= 1),
)


def _check_sampling_space(check: RecordCheck, decoding: Mapping[str, Any], temperature: Any) -> None:
    """Warn where log-probabilities may refer to another distribution than the trainer's."""
    stated = decoding.get("logprobs_temperature")
    if stated is not None and temperature is not None and not (is_number(stated) and stated == temperature):
        rule = f"should be the sampling temperature, {temperature}"
        way_out = "Divide the logits by the temperature before the softmax, on both sides."
        check.add("logprob_temperature", "decoding", rule, stated, way_out, inner=".logprobs_temperature")
    top_p, top_k, min_p = (decoding.get(name) for name in ("top_p", "top_k", "min_p"))
    cut = (is_number(top_p) and 0 < top_p < 1, is_whole(top_k) and top_k > 0, is_number(min_p) and min_p > 0)
    recorded = ("logprobs_mode", "sampling_mask", "kept_token_ids")
    if any(cut) and not any(name in source for name in recorded for source in (decoding, check.values)):
        name = ("top_p", "top_k", "min_p")[cut.index(True)]
        rule = "should come with logprobs_mode or the sampling mask"
        way_out = "Renormalised log-probabilities put the kept mass into every ratio."
        check.add("truncated_sampling", "decoding", rule, decoding[name], way_out, inner=f".{name}")


def check_reward(check: RecordCheck) -> None:
    """Check a reward: one number, or a mapping of named numbers."""
    if not check.required("reward"):
        return
    reward = check.get("reward")
    if reward is None:
        if "reward" in check.schema.required:
            way_out = "Drop a rollout that was not scored; null is not 0."
            check.add("reward_null", "reward", "must be a number or a mapping of numbers", None, way_out)
    elif isinstance(reward, Mapping):
        if not reward:
            check.add("reward_empty", "reward", "must name at least one reward", reward, "Keep the scores.")
        for name, value in reward.items():
            # A name from a file goes into a path as it is only when it cannot disturb a terminal.
            plain = isinstance(name, str) and name.isidentifier() and name.isascii()
            _check_one_reward(check, value, f".{name}" if plain else f"[{shown(name)}]")
    else:
        _check_one_reward(check, reward, "")


def _check_one_reward(check: RecordCheck, value: Any, inner: str) -> None:
    if value is None:
        way_out = "Leave out a reward that abstains; null is not 0."
        check.add("reward_null", "reward", "must not be null", value, way_out, inner=inner)
    elif not is_number(value):
        check.add("reward_type", "reward", "must be a number", value, "Give 1.0 and 0.0.", inner=inner)
    elif not is_finite(value):
        way_out = "One NaN makes a whole batch NaN; drop the rollout."
        check.add("reward_finite", "reward", "must be finite", value, way_out, inner=inner)


def check_stop(check: RecordCheck, response: list[Any] | None, active: list[Any] | None) -> None:
    """Check the stop reason, and whether the tokens agree with it where the EOS ids are known."""
    if not check.required("stop_reason"):
        return
    stop = check.get("stop_reason")
    if stop is None and "stop_reason" not in check.schema.required:
        return
    if not isinstance(stop, str):
        check.add("stop_type", "stop_reason", "must be a text", stop, "Record the engine's finish reason.")
        return
    reason = stop.lower()
    if reason in UNTRAINABLE_STOPS:
        way_out = "Drop it, or resume it; a prefix is not an answer."
        check.add("stop_untrainable", "stop_reason", "must be that of a finished rollout", stop, way_out)
    elif reason not in TRAINABLE_STOPS:
        way_out = nearest(reason, TRAINABLE_STOPS) or "Map the engine's word to one of these."
        rule = f"must be one of {', '.join(TRAINABLE_STOPS)}"
        check.add("stop_unknown", "stop_reason", rule, stop, way_out)
    eos = check.limits.eos_token_ids
    if not eos or not response or not all_whole(response):
        return
    if reason == "eos" and response[-1] not in eos:
        rule = f"must not be 'eos' for a response that ends in token {shown(response[-1])}"
        way_out = "Name every EOS id of the model, or record the truncation."
        check.add("stop_mismatch", "stop_reason", rule, stop, way_out)
    if reason in LENGTH_STOPS and response[-1] in eos:
        rule = f"should not be {stop!r} for a response that ends in EOS token {response[-1]}"
        check.add("length_but_eos", "stop_reason", rule, stop, "Take the engine's finish reason.")
    if active is None and check.get("turns") is None and not eos.isdisjoint(response[:-1]):
        early = [i for i, token in enumerate(response) if token in eos]
        rule = "should end at the first EOS"
        way_out = "Cut the padding, or give the loss mask of a response with several turns."
        check.add_all("tokens_after_eos", "response_tokens", rule, response, early[:1], way_out)


# -- text, messages and turns ------------------------------------------------------------------------------


def check_text(check: RecordCheck, response: list[Any] | None) -> None:
    """Compare the ids with the text encoded again, when an encoder is given."""
    text = check.get("response_text")
    if check.limits.encode is None or not isinstance(text, str) or response is None:
        return
    again = flat_list(check.limits.encode(text))
    if again is not None and all_whole(response) and again != response:
        at = next(
            (i for i, (a, b) in enumerate(zip(response, again)) if a != b), min(len(response), len(again))
        )
        rule = f"should encode to the sampled ids, which differ from token {at} on"
        way_out = "Train on the sampled ids; never on the text encoded again."
        got = Words(f"{len(again)} ids for {len(response)}")
        check.add("retokenization_drift", "response_text", rule, got, way_out)


def check_messages(check: RecordCheck) -> None:
    """Check that an assistant message says something; null content is legal beside tool calls."""
    messages = check.get("messages")
    if not isinstance(messages, list | tuple):
        return
    for i, item in enumerate(messages):
        if not isinstance(item, Mapping) or item.get("role") != "assistant":
            continue
        if item.get("content") is None and is_blank(item.get("tool_calls")):
            rule = "must have content or tool calls"
            way_out = "Keep what the model wrote."
            check.add("message_content", "messages", rule, None, way_out, inner=f"[{i}].content")


def checked(record: Any, schema: RecordSchema, limits: ContractLimits) -> RecordCheck:
    """Run every rule over one record.

    Parameters
    ----------
    record : mapping
        Anything else is reported.
    schema : RecordSchema
        How the record names its fields.
    limits : ContractLimits
        What it is compared with.

    Returns
    -------
    RecordCheck
        With errors and warnings in ``findings``: the record's own error first, then field by field.

    Examples
    --------
    >>> checked(17, RecordSchema("lagsweep"), ContractLimits()).findings
    ['record: must be a mapping of fields (got 17). Write one record per line.']
    """
    if not isinstance(record, Mapping):
        check = RecordCheck({}, schema, limits)
        way_out = "Write one record per line."
        found = make_finding("record_type", "record", "must be a mapping of fields", record, way_out)
        check.findings.append(found)
        return check
    check = RecordCheck(record, schema, limits)
    check_error(check)
    check_ids(check)
    check_version(check)
    prompt = check_tokens(check, "prompt_tokens", "prompt_empty")
    response = check_tokens(check, "response_tokens", "response_empty")
    logprobs = check_logprobs(check, response)
    active = check_masks(check, response, logprobs)
    check_lengths(check, prompt, response)
    check_decoding(check)
    check_reward(check)
    check_stop(check, response, active)
    check_text(check, response)
    check_messages(check)
    check_turns(check)
    return check
