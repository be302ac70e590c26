"""The lab's sections that are sums: memory, phases and overlap, weight synchronization, checkpoints.

Every formula comes from :mod:`lagsweep.kernels`; here they are only called, with round numbers that a
reader can check on paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lagsweep.sweeps import lab_charts as charts
from lagsweep.sweeps.lab_model import GIB, Column, Profile, Section, Table

SEVEN_BILLION = 7_000_000_000
ONE_PERCENT = 70_000_000
STATES = (
    ("full, no fp32 copy (12 bytes)", {"parameters": SEVEN_BILLION, "recipe": "adam_no_master"}),
    ("full, fp32 copy (16 bytes)", {"parameters": SEVEN_BILLION, "recipe": "adam_mixed"}),
    ("full, 8-bit Adam", {"parameters": SEVEN_BILLION, "recipe": "adam_8bit"}),
    (
        "1% adapters on a frozen base",
        {
            "parameters": SEVEN_BILLION + ONE_PERCENT,
            "trainable_parameters": ONE_PERCENT,
            "recipe": "adam_mixed",
        },
    ),
)
PARTS = ("weights", "gradients", "optimizer", "master")
STRAGGLERS = (3, 3, 4, 4, 5, 5, 6, 18)
CHECKPOINT_SECONDS, MTBF_SECONDS = 180.0, 36_000.0
CADENCES = (1, 2, 4, 8)


def memory_section(profile: Profile) -> Section:
    """Section 2: what the model's state takes, and what the KV cache takes beside it."""
    from lagsweep.kernels import kv_cache_bytes, model_state_bytes

    states = [(name, model_state_bytes(**settings)) for name, settings in STATES]
    rows = [
        {
            "training": name,
            "bytes": state.total_bytes,
            "total_gib": state.total_bytes / GIB,
            **{part: getattr(state, f"{part}_bytes") / GIB for part in PARTS},
        }
        for name, state in states
    ]
    contexts, heads = np.array([1024, 4096, 16_384, 32_768]), np.array([4, 8, 32])
    caches = kv_cache_bytes(
        num_sequences=64,
        tokens_per_sequence=contexts[:, None],
        num_layers=32,
        num_kv_heads=heads[None, :],
        head_dim=128,
        element_bytes=2,
    )
    cache_rows = [
        {
            "tokens": int(tokens),
            **{f"heads_{count}": int(cache) for count, cache in zip(heads, row)},
        }
        for tokens, row in zip(contexts, caches)
    ]
    return Section(
        2,
        "Memory ledger",
        (
            "Bytes that the state of a 7B model needs by design, before activations, buffers and what the "
            "allocator wastes. The frozen base needs no gradients and no moments, so adapters cost little "
            "more than the weights.",
            "The KV cache of 64 sequences in 32 layers with heads of 128, in bf16: it grows with context and "
            "KV heads alike. 4,096 tokens at 4 heads are 16 GiB exactly.",
        ),
        (
            Table(
                "memory_state",
                "State of a 7B model",
                (
                    Column("training", "training"),
                    Column("weights", "weights", ".1f"),
                    Column("gradients", "grads", ".1f"),
                    Column("optimizer", "moments", ".1f"),
                    Column("master", "fp32", ".1f"),
                    Column("total_gib", "GiB", ".2f"),
                    Column("bytes", "bytes", ","),
                ),
                rows,
            ),
            Table(
                "memory_kv_cache",
                "KV cache of 64 sequences",
                (
                    Column("tokens", "tokens each", ","),
                    *(Column(f"heads_{count}", f"{count} KV heads", "bytes") for count in heads),
                ),
                cache_rows,
            ),
        ),
        (charts.memory_chart(rows, PARTS),),
    )


def overlap_section(profile: Profile) -> Section:
    """Section 3: the peak over phases, two overlapped stages, and the cost of the slowest member."""
    from lagsweep.kernels import (
        expected_maximum_lognormal,
        peak_memory,
        pipeline_report,
        straggler_report,
    )

    phases = {
        "rollout": {"weights": 14 * GIB, "KV cache": 16 * GIB, "workspace": 2 * GIB},
        "training": {"weights": 14 * GIB, "activations": 8 * GIB, "optimizer": 28 * GIB},
        "weight publication": {"weights": 14 * GIB, "second copy": 14 * GIB, "buffers": 2 * GIB},
    }
    peak = peak_memory(phases)
    phase_rows = [
        {"phase": name, "gib": total / GIB, "peak": name == peak.phase}
        for name, total in peak.phase_totals.items()
    ]
    overlap_rows = []
    for batches in (1, 2, 10, 100):
        report = pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=batches)
        overlap_rows.append(
            {
                "batches": batches,
                "sequential_seconds": report.sequential_total,
                "overlapped_seconds": report.pipeline_total,
                "speedup": report.speedup,
            }
        )
    group = straggler_report(list(STRAGGLERS))
    sizes = np.array([8, 64, 256, 1024])
    straggler_rows = [
        {
            "group": f"measured: {', '.join(map(str, STRAGGLERS))} s",
            "slowest_over_mean": group.max / group.mean,
        }
    ]
    stretched = expected_maximum_lognormal(sizes, sigma=0.5) / np.exp(0.125)
    straggler_rows += [
        {"group": f"lognormal 0.5, {size} members", "slowest_over_mean": float(ratio)}
        for size, ratio in zip(sizes, stretched)
    ]
    return Section(
        3,
        "Phase peaks, overlap and stragglers",
        (
            f"On shared GPUs only one phase is live at a time, so the largest phase decides: {peak.phase}, "
            f"{peak.peak_bytes / GIB:.0f} GiB.",
            "With rollouts of 60 s and training of 20 s, overlap hides the shorter stage behind the longer "
            "one; it can never do better than the longer one alone.",
            f"A group that waits for its slowest member is busy {group.utilization:.1%} of the time in the "
            "measured case; with more members the wait grows, even at the same spread.",
        ),
        (
            Table(
                "overlap_phases",
                "Live memory by phase",
                (Column("phase", "phase"), Column("gib", "GiB", ".1f"), Column("peak", "peak")),
                phase_rows,
            ),
            Table(
                "overlap_pipeline",
                "Rollouts of 60 s, training of 20 s",
                (
                    Column("batches", "batches", ","),
                    Column("sequential_seconds", "one after the other, s", ",.0f"),
                    Column("overlapped_seconds", "overlapped, s", ",.0f"),
                    Column("speedup", "speed-up", ".3f"),
                ),
                overlap_rows,
            ),
            Table(
                "overlap_stragglers",
                "Time to the slowest member over the mean",
                (Column("group", "group"), Column("slowest_over_mean", "slowest / mean", ".3f")),
                straggler_rows,
            ),
        ),
        (charts.phase_chart(phases),),
    )


def sync_section(profile: Profile) -> Section:
    """Section 8: what a publication costs, and what publishing less often costs in lag."""
    from lagsweep.kernels import synchronization_schedule, synchronization_transfer_time

    payloads = (("7B weights in bf16", 2 * SEVEN_BILLION), ("1% adapters in bf16", 2 * ONE_PERCENT))
    transfer_rows = [
        {
            "payload": name,
            "gib": payload / GIB,
            "seconds": float(
                synchronization_transfer_time(payload, 25.0, setup_seconds=0.15, efficiency=0.80)
            ),
            "seconds_400": float(
                synchronization_transfer_time(payload, 400 / 8, setup_seconds=0.15, efficiency=0.80)
            ),
        }
        for name, payload in payloads
    ]
    full = transfer_rows[0]["seconds"]
    cadence_rows: list[dict[str, Any]] = []
    for every in CADENCES:
        schedule = synchronization_schedule(sync_every=every, updates=16)
        cadence_rows.append(
            {
                "sync_every": every,
                "synchronizations": schedule.synchronization_count,
                "mean_lag": schedule.mean_lag,
                "max_lag": schedule.max_lag,
                "seconds_per_update": schedule.synchronization_count * full / 16,
            }
        )
    return Section(
        8,
        "Weight synchronization",
        (
            "Time to publish is a fixed part plus bytes over the bandwidth that is really reached (here "
            "0.15 s, 80% of the link; GB are 1e9 bytes).",
            "Publishing every K updates divides that cost by K and lets the data fall behind by up to K - 1 "
            "updates, counted before the update that trains on it.",
        ),
        (
            Table(
                "sync_transfer",
                "One publication",
                (
                    Column("payload", "payload"),
                    Column("gib", "GiB", ".2f"),
                    Column("seconds", "25 GB/s, s", ".3f"),
                    Column("seconds_400", "400 Gbit/s, s", ".3f"),
                ),
                transfer_rows,
            ),
            Table(
                "sync_cadence",
                "16 updates, 7B weights at 25 GB/s",
                (
                    Column("sync_every", "every K updates"),
                    Column("synchronizations", "publications"),
                    Column("mean_lag", "mean lag", ".1f"),
                    Column("max_lag", "max lag"),
                    Column("seconds_per_update", "s per update", ".3f"),
                ),
                cadence_rows,
            ),
        ),
        (charts.cadence_chart(cadence_rows),),
    )


def checkpoint_section(profile: Profile) -> Section:
    """Section 9: how often to save, what to save, and what a resume without a part of it changes."""
    from lagsweep.kernels import (
        checkpoint_cadence,
        expected_overhead_fraction,
        optimal_checkpoint_interval,
    )

    interval_rows = []
    for method, label in (
        ("young", "Young, first order"),
        ("daly_first", "Daly, first order"),
        ("daly_higher", "Daly, higher order"),
        ("exact", "exact optimum"),
    ):
        interval = float(optimal_checkpoint_interval(CHECKPOINT_SECONDS, MTBF_SECONDS, method=method))
        cadence = checkpoint_cadence(
            interval, checkpoint_seconds=CHECKPOINT_SECONDS, mtbf_seconds=MTBF_SECONDS
        )
        interval_rows.append(
            {
                "rule": label,
                "interval_seconds": interval,
                "saving": cadence.checkpoint_fraction,
                "rework": cadence.expected_rework_fraction,
                "exact_overhead": cadence.exact_overhead,
            }
        )
    intervals = np.geomspace(600.0, 21_600.0, 60)
    overheads = expected_overhead_fraction(
        intervals, checkpoint_seconds=CHECKPOINT_SECONDS, mtbf_seconds=MTBF_SECONDS
    )
    manifest_table, drill_table, drill_text = _recovery_tables(profile)
    return Section(
        9,
        "Checkpoints and a failure drill",
        (
            "With saves of 180 s and a failure every 10 hours, saving too often wastes time on saves and "
            "too seldom on lost work. Around the optimum the cost is flat, so Young's hour is as good as the "
            "exact interval.",
            "A manifest holds counters, cursor, generators and versions of components as one snapshot.",
            drill_text,
        ),
        (
            Table(
                "checkpoint_intervals",
                "Work between two saves",
                (
                    Column("rule", "rule"),
                    Column("interval_seconds", "interval, s", ",.1f"),
                    Column("saving", "saving", ".2%"),
                    Column("rework", "lost work", ".2%"),
                    Column("exact_overhead", "exact overhead", ".3%"),
                ),
                interval_rows,
            ),
            manifest_table,
            drill_table,
        ),
        (charts.checkpoint_chart(intervals, np.asarray(overheads), interval_rows),),
    )


def _recovery_tables(profile: Profile) -> tuple[Table, Table, str]:
    """A manifest as a table of fields, and the drill's resumes."""
    from lagsweep.sweeps.checkpoint import checkpoint_as_dict, make_checkpoint
    from lagsweep.sweeps.drill import recovery_drill

    rng = np.random.default_rng(profile.first_seed)
    rng.integers(0, 10_000, size=8)
    manifest = checkpoint_as_dict(
        make_checkpoint(
            optimizer_step=3,
            current_version=3,
            published_version=3,
            dataset_cursor=8,
            rng=rng,
            python_random=False,
        )
    )
    shown = ("optimizer_step", "current_version", "published_version", "dataset_cursor", "schema_version")
    fields = [{"field": name, "value": str(manifest[name])} for name in shown]
    generator = manifest["rng_state"]["numpy"]
    fields.append({"field": "generator", "value": f"{generator['bit_generator']}, 128-bit state as text"})
    fields.append({"field": "digest", "value": manifest["digest"][:16]})
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
    exact = "equals the uninterrupted run in everything" if drill.exact_match else "IS NOT EXACT"
    told = "told apart by comparing" if drill.all_caught else "NOT ALL TOLD APART"
    text = (
        f"After a crash, the resume from everything {exact}. The {len(drill.broken)} others leave something "
        f"out: they train on without an error, on other data, and are {told}."
    )
    return (
        Table(
            "checkpoint_manifest", "A manifest", (Column("field", "field"), Column("value", "value")), fields
        ),
        Table(
            "checkpoint_drill",
            "Crash after 8 updates, 8 more after the resume",
            (
                Column("resume", "resume"),
                Column("equal", "equal"),
                Column("first_different_update", "differs from"),
                Column("changes", "what it silently changes"),
            ),
            rows,
        ),
        text,
    )
