"""The lab's sections on memory and time: the ledger, phase peaks, overlap, stragglers.

Every formula comes from :mod:`lagsweep.kernels`; here they are only called, with round numbers that a
reader can check on paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import charts
from .model import GIB, Column, Profile, Section, Table

SEVEN_BILLION = 7_000_000_000
ONE_PERCENT = 70_000_000
STATES: tuple[tuple[str, dict[str, Any]], ...] = (
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
PHASES = {
    "rollout": {"weights": 14 * GIB, "KV cache": 16 * GIB, "workspace": 2 * GIB},
    "training": {"weights": 14 * GIB, "activations": 8 * GIB, "optimizer": 28 * GIB},
    "weight publication": {"weights": 14 * GIB, "second copy": 14 * GIB, "buffers": 2 * GIB},
}
STRAGGLERS = (3, 3, 4, 4, 5, 5, 6, 18)


def memory_section(profile: Profile) -> Section:
    """Section 2: what the model's state takes, and what the KV cache takes beside it."""
    states = _state_table()
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
        (states, _cache_table()),
        (charts.memory_chart(states.rows, PARTS),),
    )


def _state_table() -> Table:
    from ...kernels import model_state_bytes

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
    columns = (
        Column("training", "training"),
        Column("weights", "weights", ".1f"),
        Column("gradients", "grads", ".1f"),
        Column("optimizer", "moments", ".1f"),
        Column("master", "fp32", ".1f"),
        Column("total_gib", "GiB", ".2f"),
        Column("bytes", "bytes", ","),
    )
    return Table("memory_state", "State of a 7B model", columns, rows)


def _cache_table() -> Table:
    from ...kernels import kv_cache_bytes

    contexts, heads = np.array([1024, 4096, 16_384, 32_768]), np.array([4, 8, 32])
    caches = kv_cache_bytes(
        num_sequences=64,
        tokens_per_sequence=contexts[:, None],
        num_layers=32,
        num_kv_heads=heads[None, :],
        head_dim=128,
        element_bytes=2,
    )
    rows = [
        {"tokens": int(tokens), **{f"heads_{count}": int(cache) for count, cache in zip(heads, row)}}
        for tokens, row in zip(contexts, np.asarray(caches))
    ]
    columns = (
        Column("tokens", "tokens each", ","),
        *(Column(f"heads_{count}", f"{count} KV heads", "bytes") for count in heads),
    )
    return Table("memory_kv_cache", "KV cache of 64 sequences", columns, rows)


def overlap_section(profile: Profile) -> Section:
    """Section 3: the peak over phases, two overlapped stages, and the cost of the slowest member."""
    from ...kernels import peak_memory, straggler_report

    peak = peak_memory(PHASES)
    phase_rows = [
        {"phase": name, "gib": total / GIB, "peak": name == peak.phase}
        for name, total in peak.phase_totals.items()
    ]
    phase_columns = (Column("phase", "phase"), Column("gib", "GiB", ".1f"), Column("peak", "peak"))
    group = straggler_report(list(STRAGGLERS))
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
            Table("overlap_phases", "Live memory by phase", phase_columns, phase_rows),
            _pipeline_table(),
            _straggler_table(float(group.max / group.mean)),
        ),
        (charts.phase_chart(PHASES),),
    )


def _pipeline_table() -> Table:
    from ...kernels import pipeline_report

    rows = []
    for batches in (1, 2, 10, 100):
        report = pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=batches)
        rows.append(
            {
                "batches": batches,
                "sequential_seconds": report.sequential_total,
                "overlapped_seconds": report.pipeline_total,
                "speedup": report.speedup,
            }
        )
    columns = (
        Column("batches", "batches", ","),
        Column("sequential_seconds", "one after the other, s", ",.0f"),
        Column("overlapped_seconds", "overlapped, s", ",.0f"),
        Column("speedup", "speed-up", ".3f"),
    )
    return Table("overlap_pipeline", "Rollouts of 60 s, training of 20 s", columns, rows)


def _straggler_table(measured_ratio: float) -> Table:
    from ...kernels import expected_maximum_lognormal

    sizes, sigma = np.array([8, 64, 256, 1024]), 0.5
    # The mean of a lognormal with mu = 0 is exp(sigma**2 / 2).
    ratios = expected_maximum_lognormal(sizes, sigma=sigma) / np.exp(sigma**2 / 2)
    rows = [
        {"group": f"measured: {', '.join(map(str, STRAGGLERS))} s", "slowest_over_mean": measured_ratio},
        *(
            {"group": f"lognormal {sigma:g}, {size} members", "slowest_over_mean": float(ratio)}
            for size, ratio in zip(sizes, ratios)
        ),
    ]
    columns = (Column("group", "group"), Column("slowest_over_mean", "slowest / mean", ".3f"))
    return Table("overlap_stragglers", "Time to the slowest member over the mean", columns, rows)
