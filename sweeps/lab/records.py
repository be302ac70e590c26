"""The lab's section on rollout records: what a check at the queue's edge finds in records gone wrong."""

from __future__ import annotations

from typing import Any

from .model import Column, Profile, Section, Table

GOOD_RECORD: dict[str, Any] = {
    "sample_id": "lab-0",
    "prompt_id": "prompt-0",
    "policy_version": 12,
    "prompt_tokens": [5, 6, 7],
    "response_tokens": [40, 41, 42, 2],
    "behavior_logprobs": [-0.75, -1.5, -0.25, -0.5],
    "decoding": {"temperature": 1.0, "top_p": 1.0},
    "reward": {"correct": 1.0},
    "stop_reason": "eos",
    "verifier_version": "v1",
}
FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("nothing", {}),
    ("log-probabilities missing", {"behavior_logprobs": None}),
    ("version of -1", {"policy_version": -1}),
    ("one log-probability too few", {"behavior_logprobs": [-0.75, -1.5, -0.25]}),
    ("a log-probability of +0.5", {"behavior_logprobs": [-0.75, 0.5, -0.25, -0.5]}),
    ("a reward that is not a number", {"reward": {"correct": float("nan")}}),
    ("temperature 0", {"decoding": {"temperature": 0.0, "top_p": 1.0}}),
    ("both of the first two", {"behavior_logprobs": None, "policy_version": -1}),
)


def records_section(profile: Profile) -> Section:
    """Section 7: every violation of every record, each with a code and a place."""
    from ...kernels import rollout_contract_errors

    rows = []
    for fault, changes in FAULTS:
        changed = {**GOOD_RECORD, **changes}
        record = {name: value for name, value in changed.items() if value is not None}
        found = rollout_contract_errors(record)
        rows.append(
            {
                "fault": fault,
                "findings": len(found),
                "codes": ", ".join(sorted({finding.code for finding in found})) or "-",
            }
        )
    return Section(
        7,
        "The rollout contract",
        (
            "A record is checked where it enters the queue, before any optimizer sees it. All violations are "
            "reported, not the first alone; a good record gives an empty list.",
        ),
        (
            Table(
                "contract",
                "One good record, changed in one way at a time",
                (
                    Column("fault", "what is wrong"),
                    Column("findings", "findings"),
                    Column("codes", "codes"),
                ),
                rows,
            ),
        ),
    )
