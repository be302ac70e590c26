"""Rollout records: one that is good, good ones of any content, damaged ones, anything that JSON can hold."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from ...kernels._arguments import one_whole

Record = dict[str, Any]


def good_record(**changes: Any) -> Record:
    """Return a rollout record without a flaw, with some fields replaced.

    Parameters
    ----------
    **changes
        Fields and values; ``field=None`` is a value.

    Examples
    --------
    >>> from lagsweep.kernels import rollout_contract_errors
    >>> rollout_contract_errors(good_record()), len(rollout_contract_errors(good_record(policy_version=-1)))
    ([], 1)
    """
    record: Record = {
        "sample_id": "run1-p003-r01",
        "prompt_id": "p003",
        "policy_version": 17,
        "prompt_tokens": [11, 42, 17],
        "response_tokens": [31, 15, 2],
        "behavior_logprobs": [-0.5, -1.25, -0.25],
        "decoding": {"temperature": 0.8, "top_p": 1.0},
        "reward": {"correctness": 1.0, "format": 0.0},
        "stop_reason": "eos",
        "verifier_version": "v4",
    }
    return {**record, **changes}


def made_records(
    count: int, *, group_size: int = 4, first_version: int = 0, seed: int = 0, max_tokens: int = 12
) -> list[Record]:
    """Return good records of groups of rollouts, the same for the same arguments.

    Parameters
    ----------
    count : int
        Records.
    group_size : int
        Rollouts of one prompt; the last group may have fewer.
    first_version : int
        Behaviour version of the first group; it grows by 1 every second group.
    seed : int
    max_tokens : int
        Longest response; one that is as long was cut.

    Returns
    -------
    list of dict

    Raises
    ------
    ConfigError
        If a number is out of its range.

    Examples
    --------
    >>> records = made_records(8)
    >>> [record["prompt_id"] for record in records[3:5]], records == made_records(8)
    (['p0', 'p1'], True)
    """
    count = one_whole("count", count, minimum=0, maximum=10_000_000)
    size = one_whole("group_size", group_size, minimum=1, maximum=2**20)
    version = one_whole("first_version", first_version, minimum=0, maximum=2**31)
    longest = one_whole("max_tokens", max_tokens, minimum=1, maximum=2**20)
    draws = random.Random(one_whole("seed", seed, minimum=0, maximum=2**62))
    return [_made(draws, number, size, version, longest) for number in range(count)]


def _made(draws: random.Random, number: int, size: int, version: int, longest: int) -> Record:
    group = number // size
    tokens = draws.randint(1, longest)
    ended = tokens < longest
    return good_record(
        sample_id=f"p{group}-r{number % size}",
        prompt_id=f"p{group}",
        policy_version=version + group // 2,
        prompt_tokens=[draws.randint(3, 99) for _ in range(3)],
        response_tokens=[draws.randint(3, 99) for _ in range(tokens - ended)] + [2] * ended,
        behavior_logprobs=[-draws.random() * 3 for _ in range(tokens)],
        reward={"correctness": float(draws.random() < 0.5), "format": 0.0},
        stop_reason="eos" if ended else "length",
    )


# What a record may hold, and what is near to that ---------------------------------------------------------

FIELDS = (*good_record(), "loss_mask", "tool_mask", "token_versions", "teacher_logprobs", "error", "turns")
FIELDS += ("messages", "group_id", "episode_id", "response_text", "logprobs_mode", "sampling_mask")

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**400, -(10**400), -9999, 0, 1])
    | st.floats()
    | st.text(max_size=8)
)
_json_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
# Settings inside decoding and turns are reached only by their names.
_INNER: tuple[str, ...] = ("temperature", "top_p", "top_k", "min_p", "logprobs_temperature")
_INNER += ("prompt_tokens", "response_tokens", "role", "content", "tool_calls")
_named = st.dictionaries(st.sampled_from(_INNER), _json_values, max_size=5)
# Lists as long as the good record's response, mostly of what belongs there.
_NEAR: list[Any] = [0, 1, 2, 15, -1, -9999, -0.5, 0.0, 0.5, True, None, float("nan"), float("-inf"), "1"]
_lists = st.lists(st.sampled_from(_NEAR), min_size=2, max_size=3)
_settings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.8, 0.0, None])},
    optional={"top_p": st.sampled_from([0.9, 2]), "top_k": st.sampled_from([50, -5])},
)
_field_values = _json_values | _lists | _lists | _settings | _named | st.lists(_named, max_size=3)


def json_values() -> st.SearchStrategy[Any]:
    """Return a strategy of anything that JSON can hold: nested, huge, not finite.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(json_values(), lambda value: isinstance(value, list))
    []
    """
    return _json_values


def arbitrary_records() -> st.SearchStrategy[Record]:
    """Return a strategy of mappings with fields of a record and any values.

    Examples
    --------
    >>> from hypothesis import find
    >>> "reward" in find(arbitrary_records(), lambda record: "reward" in record)
    True
    """
    return st.dictionaries(st.sampled_from(FIELDS), _field_values)


@st.composite
def damaged_records(draw: st.DrawFn) -> Record:
    """Draw a good record with some fields replaced by anything or removed.

    Examples
    --------
    >>> from hypothesis import find
    >>> "reward" in find(damaged_records(), lambda record: len(record) < len(good_record()))
    True
    """
    record = good_record()
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        record[name] = draw(_field_values)
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=1)):
        record.pop(name, None)
    return record


@st.composite
def rollout_records(draw: st.DrawFn, *, max_tokens: int = 12, max_version: int = 20) -> Record:
    """Draw a good record: response, log-probabilities, version, reward and end fit together.

    Parameters
    ----------
    max_tokens : int
        Longest response.
    max_version : int
        Largest behaviour version.

    Examples
    --------
    >>> from hypothesis import find
    >>> record = find(rollout_records(), lambda record: len(record["response_tokens"]) > 1)
    >>> record["response_tokens"], record["behavior_logprobs"], record["policy_version"]
    ([0, 0], [0.0, 0.0], 0)
    """
    longest = one_whole("max_tokens", max_tokens, minimum=1, maximum=2**16)
    newest = one_whole("max_version", max_version, minimum=0, maximum=2**31)
    tokens = draw(st.lists(st.integers(0, 50_000), min_size=1, max_size=longest))
    logprobs = st.lists(st.floats(-30.0, 0.0), min_size=len(tokens), max_size=len(tokens))
    group, member = draw(st.integers(0, 99)), draw(st.integers(0, 15))
    return good_record(
        sample_id=f"p{group}-r{member}",
        prompt_id=f"p{group}",
        policy_version=draw(st.integers(0, newest)),
        prompt_tokens=draw(st.lists(st.integers(0, 50_000), min_size=1, max_size=4)),
        response_tokens=tokens,
        behavior_logprobs=draw(logprobs),
        reward={"correctness": draw(st.sampled_from([0.0, 1.0])), "format": 0.0},
        stop_reason=draw(st.sampled_from(["eos", "length"])),
    )
