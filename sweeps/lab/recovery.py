"""The lab's sections on publishing weights and surviving failures: synchronization, checkpoints, drill."""

from __future__ import annotations

import numpy as np

from ..checkpoint.checkpoint import checkpoint_as_dict, make_checkpoint
from ..checkpoint.drill import recovery_drill
from . import charts
from .memory import ONE_PERCENT, SEVEN_BILLION
from .model import GIB, Column, Profile, Section, Table

CADENCES = (1, 2, 4, 8)
LINK = {"setup_seconds": 0.15, "efficiency": 0.80}
CHECKPOINT = {"checkpoint_seconds": 180.0, "mtbf_seconds": 36_000.0}
RULES = (
    ("young", "Young, first order"),
    ("daly_first", "Daly, first order"),
    ("daly_higher", "Daly, higher order"),
    ("exact", "exact optimum"),
)


def sync_section(profile: Profile) -> Section:
    """Section 8: what a publication costs, and what publishing less often costs in lag."""
    transfer = _transfer_table()
    cadence = _cadence_table(transfer.rows[0]["seconds"])
    return Section(
        8,
        "Weight synchronization",
        (
            "Time to publish is a fixed part plus bytes over the bandwidth that is really reached (here "
            "0.15 s, 80% of the link; GB are 1e9 bytes).",
            "Publishing every K updates divides that cost by K and lets the data fall behind by up to K - 1 "
            "updates, counted before the update that trains on it.",
        ),
        (transfer, cadence),
        (charts.cadence_chart(cadence.rows),),
    )


def _transfer_table() -> Table:
    from ...kernels import gigabits_to_gigabytes_per_second, synchronization_transfer_time

    network = float(gigabits_to_gigabytes_per_second(400.0))
    rows = [
        {
            "payload": name,
            "gib": payload / GIB,
            "seconds": float(synchronization_transfer_time(payload, 25.0, **LINK)),
            "seconds_400": float(synchronization_transfer_time(payload, network, **LINK)),
        }
        for name, payload in (
            ("7B weights in bf16", 2 * SEVEN_BILLION),
            ("1% adapters in bf16", 2 * ONE_PERCENT),
        )
    ]
    columns = (
        Column("payload", "payload"),
        Column("gib", "GiB", ".2f"),
        Column("seconds", "25 GB/s, s", ".3f"),
        Column("seconds_400", "400 Gbit/s, s", ".3f"),
    )
    return Table("sync_transfer", "One publication", columns, rows)


def _cadence_table(publication_seconds: float) -> Table:
    from ...kernels import synchronization_schedule

    rows = []
    for every in CADENCES:
        schedule = synchronization_schedule(sync_every=every, updates=16)
        rows.append(
            {
                "sync_every": every,
                "synchronizations": schedule.synchronization_count,
                "mean_lag": schedule.mean_lag,
                "max_lag": schedule.max_lag,
                "seconds_per_update": schedule.synchronization_count * publication_seconds / 16,
            }
        )
    columns = (
        Column("sync_every", "every K updates"),
        Column("synchronizations", "publications"),
        Column("mean_lag", "mean lag", ".1f"),
        Column("max_lag", "max lag"),
        Column("seconds_per_update", "s per update", ".3f"),
    )
    return Table("sync_cadence", "16 updates, 7B weights at 25 GB/s", columns, rows)


def checkpoint_section(profile: Profile) -> Section:
    """Section 9: how often to save, what to save, and what a resume without a part of it changes."""
    from ...kernels import expected_overhead_fraction

    rules = _interval_table()
    intervals = np.geomspace(600.0, 21_600.0, 60)
    overheads = np.asarray(expected_overhead_fraction(intervals, **CHECKPOINT))
    drill, drill_text = _drill_table(profile)
    return Section(
        9,
        "Checkpoints and a failure drill",
        (
            "With saves of 180 s and a failure every 10 hours, saving too often wastes time on saves and too "
            "seldom on lost work. Around the optimum the cost is flat, so Young's hour is as good as the "
            "exact interval.",
            "A manifest holds counters, cursor, generators and versions of components as one snapshot.",
            drill_text,
        ),
        (rules, _manifest_table(profile), drill),
        (charts.checkpoint_chart(intervals, overheads, rules.rows),),
    )


def _interval_table() -> Table:
    from ...kernels import checkpoint_cadence, optimal_checkpoint_interval

    rows = []
    for method, label in RULES:
        interval = float(optimal_checkpoint_interval(**CHECKPOINT, method=method))
        cadence = checkpoint_cadence(interval, **CHECKPOINT)
        rows.append(
            {
                "rule": label,
                "interval_seconds": interval,
                "saving": cadence.checkpoint_fraction,
                "rework": cadence.expected_rework_fraction,
                "exact_overhead": cadence.exact_overhead,
            }
        )
    columns = (
        Column("rule", "rule"),
        Column("interval_seconds", "interval, s", ",.1f"),
        Column("saving", "saving", ".2%"),
        Column("rework", "lost work", ".2%"),
        Column("exact_overhead", "exact overhead", ".3%"),
    )
    return Table("checkpoint_intervals", "Work between two saves", columns, rows)


def _manifest_table(profile: Profile) -> Table:

    rng = np.random.default_rng(profile.first_seed)
    rng.integers(0, 10_000, size=8)
    manifest = checkpoint_as_dict(
        make_checkpoint(
            optimizer_step=3,
            current_version=3,
            published_version=3,
            dataset_cursor=8,
            rng=rng,
            # The global generator stands wherever this process left it; the table must not depend on that.
            python_random=False,
        )
    )
    shown = ("optimizer_step", "current_version", "published_version", "dataset_cursor", "schema_version")
    rows = [{"field": name, "value": str(manifest[name])} for name in shown]
    generator = manifest["rng_state"]["numpy"]
    rows.append({"field": "generator", "value": f"{generator['bit_generator']}, 128-bit state as text"})
    rows.append({"field": "digest", "value": manifest["digest"][:16]})
    return Table(
        "checkpoint_manifest", "A manifest", (Column("field", "field"), Column("value", "value")), rows
    )


def _drill_table(profile: Profile) -> tuple[Table, str]:
    """The drill's resumes, and in a sentence whether it was passed."""

    drill = recovery_drill(seed=profile.first_seed, before=8, after=8)
    rows = [
        {
            "resume": report.name,
            "equal": not report.caught,
            "changes": "; ".join(report.effects[:-1]) or "nothing",
            "first_different_update": report.first_different_update,
        }
        for report in (drill.right, *drill.broken)
    ]
    columns = (
        Column("resume", "resume"),
        Column("equal", "equal"),
        Column("first_different_update", "differs from"),
        Column("changes", "what it silently changes"),
    )
    exact = "equals the uninterrupted run in everything" if drill.exact_match else "IS NOT EXACT"
    told = "told apart by comparing" if drill.all_caught else "NOT ALL TOLD APART"
    text = (
        f"After a crash, the resume from everything {exact}. The {len(drill.broken)} others leave something "
        f"out: they train on without an error, on other data, and are {told}."
    )
    title = "Crash after 8 updates, 8 more after the resume"
    return Table("checkpoint_drill", title, columns, rows), text
