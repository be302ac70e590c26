"""Records for the contract's tests: one that is good, and anything that JSON can hold."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def good_record(**changes: Any) -> dict[str, Any]:
    """A record without a flaw; ``field=None`` is a value, use ``without`` to leave a field out."""
    record = {
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


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in good_record().items() if name not in names}


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
json_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
# Settings inside decoding and turns are reached only by their names.
_INNER = ("temperature", "top_p", "top_k", "min_p", "logprobs_temperature")
_INNER += ("prompt_tokens", "response_tokens", "role", "content", "tool_calls")
_named = st.dictionaries(st.sampled_from(_INNER), json_values, max_size=5)
# Lists as long as the good record's response, mostly of what belongs there.
_near = st.sampled_from(
    [0, 1, 2, 15, -1, -9999, -0.5, 0.0, 0.5, True, None, float("nan"), float("-inf"), "1"]
)
_lists = st.lists(_near, min_size=2, max_size=3)
_settings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.8, 0.0, None])},
    optional={"top_p": st.sampled_from([0.9, 2]), "top_k": st.sampled_from([50, -5])},
)
field_values = json_values | _lists | _lists | _settings | _named | st.lists(_named, max_size=3)
arbitrary_records = st.dictionaries(st.sampled_from(FIELDS), field_values)


@st.composite
def damaged_records(draw: st.DrawFn) -> dict[str, Any]:
    """A good record with some fields replaced by anything or removed."""
    record = good_record()
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        record[name] = draw(field_values)
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=1)):
        record.pop(name, None)
    return record
