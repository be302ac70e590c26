"""NeMo RL's 1-off policy beside its synchronous runs: what overlap can do when the split is not stated."""

from __future__ import annotations

from typing import Any

from fidelity_parts import Family, Row, Verdict, one_batch_ahead

MISSING = "not fixed: neither the split of the GPUs nor the phases of the synchronous run are stated"
SLOWER = (
    "a split that does not suit the work: 1-off took longer than the same GPUs in turn, which no split that "
    "suits it does"
)
OLDER = (
    "bounded only: the synchronous run had half of the GPUs, and is divided by two as if all of it divides"
)


def ends(synchronous: dict[str, Any], gpus: int) -> tuple[float, float]:
    """Simulate 1-off at a split that suits the work: phases that are equal and undivided, or all divided.

    GPUs that take turns generate for g and train for t. On two parts that suit the work each phase takes at
    least half of g + t, if the phases do not become longer on fewer GPUs, and g + t if they do in proportion.
    """
    whole = synchronous["step"] * synchronous["gpus"] / gpus
    return one_batch_ahead(whole / 2, whole / 2), one_batch_ahead(whole, whole)


def family(data: dict[str, Any]) -> Family:
    """Show what each 1-off row's synchronous run leaves."""
    part = data["nemo_rl"]
    found = Family(
        "NeMo RL: synchronous and 1-off",
        part["source"],
        part["setting"],
        "preset nemo_rl_legacy with age 1",
        assumed=[
            "a split that suits the work: either side is as busy as the other",
            "from phases that fewer GPUs do not lengthen, to phases that they lengthen in proportion",
            "lengths as in the synchronous run; publications take no time of their own",
        ],
        off=[
            "until now two synchronous runs, of different releases, gave a tighter bound; measurements were "
            "below it, so it was none"
        ],
    )
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for row in part["rows"]:
        runs[row["id"], f"{row['release']} {row['policy']}"] = row
    for (model, run), row in runs.items():
        if not run.endswith("1-off"):
            found.left_out.append((f"{model} {run}", "an input"))
            continue
        release = row["release"]
        synchronous = runs[model, f"{release} synchronous"]
        low, high = ends(synchronous, row["gpus"])
        name = f"{model} {release} 1-off, {row['gpus']} GPUs"
        uses = (f"{model} {release} synchronous, {synchronous['gpus']} GPUs",)
        if synchronous["gpus"] == row["gpus"]:
            why = SLOWER if row["step"] > high else ""
            middle = (low + high) / 2
            found.rows.append(
                Row(name, "step", "s", middle, row["step"], uses, "range", low, high, MISSING, why)
            )
            found.verdicts.append(
                Verdict(f"{name}, beside synchronous", synchronous["step"], low, high, row["step"])
            )
        else:
            found.rows.append(Row(name, "step", "s", None, row["step"], uses, "bound", low, None, OLDER))
    return found
