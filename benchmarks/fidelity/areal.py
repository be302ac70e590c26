"""AReaL v0.3: what is stated is not enough to predict a row."""

from __future__ import annotations

from typing import Any

from fidelity_parts import Family


def family(data: dict[str, Any]) -> Family:
    """List the rows, and what is missing."""
    part = data["areal"]
    found = Family("AReaL v0.3", part["source"], part["setting"], "none")
    missing = "neither lengths, nor the times of the phases, nor the split of the nodes are stated"
    for row in part["rows"]:
        name = f"{row['model']} on {row['nodes']} nodes"
        found.left_out += [
            (f"{name}, synchronous {row['synchronous_hours']:g} h", missing),
            (f"{name}, asynchronous {row['asynchronous_hours']:g} h", missing),
            (f"{row['model']}, interruptible generation +{row['interruptible_gain']:.0%}", missing),
        ]
    return found
