"""Plain settings of generation and rules for the twin: `to_twin` turns what is drawn into its own form."""

from __future__ import annotations

import itertools

from strategies import pipeline_configs as level_1

from lagsweep.sweeps.testing.general_settings import (
    GROUPED,
    PAIRED,
    counts_law,
    general_settings,
    longest_of,
    to_config,
)

__all__ = ["GROUPED", "PAIRED", "general_settings", "longest_of", "to_config", "to_twin"]


def to_twin(settings):
    """Return the settings as the twin takes them."""
    law = settings["response_length"]
    if law[0] == "schedule":
        parts = [(first, to_twin({**settings, "response_length": part})) for first, part in law[1]]
        laws = [(first, twin["response_length"]) for first, twin in parts]
        low, high = min(part["minimum"] for _, part in laws), longest_of(law)
        pooled = {"minimum": low, "cdf": [1.0] * (high - low + 1), "cut": False, "segments": laws}
        return {**parts[0][1], "response_length": pooled}
    twin = level_1.to_twin({**settings, "response_length": counts_law(law)})
    if law[0] == "paired":
        twin["response_length"]["rows"] = sorted(law[1])
    elif law[0] == "grouped":
        twin["response_length"]["groups"] = law[1]
    seconds = settings.get("environment_seconds")
    if seconds is not None:
        values = sorted(set(seconds))
        counts = itertools.accumulate(seconds.count(value) for value in values)
        twin["environment_seconds"] = {"values": values, "cdf": [count / len(seconds) for count in counts]}
    return twin
