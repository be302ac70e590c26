"""vime's fully asynchronous runs beside synchronous ones on the same separate devices."""

from __future__ import annotations

from typing import Any

from fidelity_parts import Family, Row, Verdict, one_batch_ahead


def ranges(
    first: dict[str, Any], second: dict[str, Any]
) -> list[tuple[dict[str, Any], float, float, str, str]]:
    """Return each set-up with what its synchronous run leaves, what is missing, and why."""
    whole = first["synchronous"]
    generation, training = second["synchronous_wait"], second["synchronous_training"]
    return [
        (
            first,
            one_batch_ahead(whole / 2, whole / 2),
            one_batch_ahead(whole, whole),
            "not fixed: the two phases of the synchronous run are not stated",
            "",
        ),
        (
            # With two batches in flight only the work of a generation counts.
            second,
            one_batch_ahead(training, training),
            one_batch_ahead(generation, training),
            "not fixed: how much of the generation is work that two batches in flight share",
            "training took 99.6 s while the other side generated, and 81.4 s in turn",
        ),
    ]


def family(data: dict[str, Any]) -> Family:
    """Show what the synchronous runs leave."""
    part = data["vime"]
    first, second = part["rows"]
    found = Family(
        "vime: synchronous and fully asynchronous",
        part["source"],
        part["setting"],
        "preset nemo_rl_legacy with age 1: each side works, and waits for the other alone",
        assumed=["lengths as in the synchronous run; what it waits is its generation"],
    )
    for row, least, most, identified, why in ranges(first, second):
        sources = (f"{row['id']}, synchronous",)
        found.rows.append(
            Row(
                row["id"],
                "step",
                "s",
                (least + most) / 2,
                row["asynchronous"],
                sources,
                "range",
                least,
                most,
                identified,
                why,
            )
        )
        found.verdicts.append(
            Verdict(f"{row['id']}, beside synchronous", row["synchronous"], least, most, row["asynchronous"])
        )
        found.left_out.append((f"{row['id']}, synchronous step", "an input"))
    found.rows.append(
        Row(
            f"{second['id']}, own training",
            "step",
            "s",
            one_batch_ahead(second["synchronous_wait"], second["asynchronous_training"]),
            second["asynchronous"],
            (f"{second['id']}, synchronous",),
            "split",
            identified="its own training, the synchronous run's generation",
        )
    )
    return found
