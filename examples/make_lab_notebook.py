"""Build the lab's notebook, run it, and store it with its outputs.

::

    python examples/make_lab_notebook.py

writes ``examples/lab.ipynb`` (to be opened and changed) and ``results/published/lab.ipynb`` (as it ran). It
needs the ``dev`` extra. ``tests/sweeps/test_lab_notebook.py`` runs the cells again and compares what they
print, so the stored notebook cannot fall behind the package.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
TEXT, CODE = "markdown", "code"

CELLS: list[tuple[str, str]] = [
    (
        TEXT,
        """
# A lab on asynchronous training: memory, queues, staleness, recovery

Ten short sections, one after another, on one CPU and in a few seconds. The first nine use formulas and the
simulator of `lagsweep`; nothing here was measured on a training cluster. The same lab as a command, with more
tables, plots and a page to keep: `lagsweep lab --profile smoke`.
""",
    ),
    (
        TEXT,
        """
## 1. A profile

All randomness comes from one seed, so running the notebook again prints the same numbers. For longer runs set
`DURATION_SECONDS` to 240.
""",
    ),
    (
        CODE,
        """
import math

import altair as alt
import numpy as np
import polars as pl

from lagsweep import kernels, sweeps
from lagsweep.kernels import BYTES_PER_GIB, human_bytes

alt.renderers.enable("svg")
SEED = 12016
DURATION_SECONDS = 120.0
print(f"{DURATION_SECONDS:.0f} simulated seconds for each loop, seed {SEED}")
""",
    ),
    (
        TEXT,
        """
## 2. What a model takes

Formulas broadcast: one call answers for several sizes. The recipe says how many bytes stand behind a trained
parameter: 16 for mixed-precision Adam (2 + 2 + 8 + 4), 12 without the fp32 copy. A frozen base with adapters
pays the full price for the adapters alone.
""",
    ),
    (
        CODE,
        """
billions = np.array([1, 7, 70])
for recipe in ("adam_no_master", "adam_mixed", "adam_8bit"):
    state = kernels.model_state_bytes(billions * 10**9, recipe=recipe)
    sizes = ", ".join(
        f"{size}B {human_bytes(int(total))}" for size, total in zip(billions, state.total_bytes)
    )
    print(f"{recipe:>14}: {sizes}")

adapters = kernels.model_state_bytes(7_070_000_000, trainable_parameters=70_000_000, recipe="adam_mixed")
print(f"7B with 1% adapters: {adapters.total_bytes:,} bytes, of which {adapters.weights_bytes:,} are weights")
assert adapters.total_bytes == 15_120_000_000
""",
    ),
    (
        TEXT,
        """
Rollouts also need a KV cache: two tensors for each layer, KV head and token. The rows below are context
lengths, the columns KV heads.
""",
    ),
    (
        CODE,
        """
contexts, heads = np.array([1024, 4096, 16384]), np.array([4, 8, 32])
cache = kernels.kv_cache_bytes(
    num_sequences=64,
    tokens_per_sequence=contexts[:, None],
    num_layers=32,
    num_kv_heads=heads,
    head_dim=128,
    element_bytes=2,
)
print("context", *(f"{count:>4} heads" for count in heads))
for tokens, row in zip(contexts, cache):
    print(f"{tokens:7,}", *(f"{size / BYTES_PER_GIB:6.0f} GiB" for size in row))
assert cache[1, 0] == 16 * BYTES_PER_GIB
""",
    ),
    (
        TEXT,
        """
## 3. Phases, overlap, stragglers

On GPUs that take turns, only what is live at once has to fit: take the sum in each phase and the maximum over
phases. When two stages overlap, the longer one sets the pace. And whoever waits for a group waits for its
slowest member.
""",
    ),
    (
        CODE,
        """
gib = BYTES_PER_GIB
peak = kernels.peak_memory(
    {
        "generate": {"weights": 14 * gib, "KV cache": 16 * gib, "workspace": 2 * gib},
        "train": {"weights": 14 * gib, "activations": 8 * gib, "optimizer": 28 * gib},
        "publish": {"weights": 14 * gib, "second copy": 14 * gib, "buffers": 2 * gib},
    }
)
print("live:", {phase: human_bytes(total) for phase, total in peak.phase_totals.items()})
print(f"peak: {peak.phase}, {human_bytes(peak.peak_bytes)}")

overlap = kernels.pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=10)
print(f"ten batches: {overlap.sequential_total:.0f} s in turn, {overlap.pipeline_total:.0f} s overlapped")

group = kernels.straggler_report([3, 3, 4, 4, 5, 5, 6, 18])
print(f"busy share of a group whose slowest member takes 18 s: {group.utilization:.4f}")
sizes = np.array([8, 64, 512])
print("lognormal lengths, busy share by group size:", end=" ")
busy = np.exp(0.125) / kernels.expected_maximum_lognormal(sizes, sigma=0.5)
print(", ".join(f"{size}: {share:.2f}" for size, share in zip(sizes, busy)))
assert math.isclose(group.utilization, 1 / 3)
""",
    ),
    (
        TEXT,
        """
## 4. One loop in turn, two that overlap

The simulator runs slots, a queue in tokens, a trainer and delayed publications. First a loop that never
overlaps its phases, then two bounded asynchronous ones: a small lag limit with weights published after every
update, and a larger one with a publication after every third. One run of two minutes says little, so each
figure is a mean over fifty seeds with the half width of its 95% interval; all loops of a seed see the same
response lengths.
""",
    ),
    (
        CODE,
        """
common = {"duration_seconds": DURATION_SECONDS, "seed": SEED}
loops = {
    "in turn": sweeps.PipelineConfig(mode="sequential", **common),
    "lag 2, every update": sweeps.PipelineConfig(max_policy_lag=2, sync_every_updates=1, **common),
    "lag 6, every third": sweeps.PipelineConfig(max_policy_lag=6, sync_every_updates=3, **common),
}
runs = {
    name: [sweeps.simulate_pipeline(config.replace(seed=SEED + extra)) for extra in range(50)]
    for name, config in loops.items()
}


def _mean_and_half_width(values):
    # 2.0096 is Student's 97.5% point at 49 degrees of freedom.
    values = np.asarray(values)
    return values.mean(), 2.0096 * values.std(ddof=1) / math.sqrt(len(values))


rates = {name: np.array([run.trained_tokens_per_second for run in many]) for name, many in runs.items()}
for name, many in runs.items():
    rate, width = _mean_and_half_width(rates[name])
    gain, gain_width = _mean_and_half_width(rates[name] - rates["in turn"])
    updates = np.mean([run.updates for run in many])
    print(
        f"{name:>20}: {updates:4.1f} updates, {rate:5.1f} ± {width:.1f} tokens/s, "
        f"gain {gain:5.1f} ± {gain_width:.1f}"
    )
assert all(np.isfinite(rate).all() and (rate >= 0).all() for rate in rates.values())
""",
    ),
    (
        TEXT,
        """
A single run as a row of a table: the settings first, then every metric. A ranking seen here belongs to these
settings.
""",
    ),
    (
        CODE,
        """
first = {name: many[0] for name, many in runs.items()}
pl.DataFrame([{"loop": name, **sweeps.result_row(run)} for name, run in first.items()])
""",
    ),
    (
        TEXT,
        """
## 5. The queue

The cap closes admission, it does not stop what is already running: rollouts in flight still land, so the
level may pass the cap for a while. Time in which a slot idles for that reason is backpressure.
""",
    ),
    (
        CODE,
        """
for name, run in first.items():
    print(
        f"{name:>20}: deepest {run.max_queue_tokens_observed:5,} tokens, "
        f"backpressure {run.backpressure_seconds:4.1f} s, discarded {run.discarded_rollouts}"
    )

levels = pl.concat(
    run.timeline_frame().select("time", "queue_tokens").with_columns(loop=pl.lit(name))
    for name, run in first.items()
    if run.config.mode == "bounded_async"
)
steps = (
    alt.Chart(levels)
    .mark_line(interpolate="step-after")
    .encode(
        alt.X("time", title="simulated time, s"),
        alt.Y("queue_tokens", title="queued, tokens"),
        alt.Color("loop", title=None),
    )
)
cap = alt.Chart(pl.DataFrame({"cap": [7000]})).mark_rule(strokeDash=[4, 4]).encode(y="cap")
(steps + cap).properties(width=560, height=240)
""",
    ),
    (
        TEXT,
        """
## 6. Age and weight

A rollout made by an older policy carries an importance weight. The more weights differ within a batch, the
fewer rollouts it is worth: that is the effective sample size, 1 when all weights are equal. A batch of eight
rollouts scatters, so the figure expected for its lags stands beside it. In this model more lag means less;
how much less on a real policy has to be measured.
""",
    ),
    (
        CODE,
        """
points = pl.concat(
    run.batches_frame()
    .select("mean_lag", "max_lag", "normalized_ess", "expected_normalized_ess")
    .with_columns(loop=pl.lit(name))
    for name, many in runs.items()
    for run in many[:8]
)
summary = points.group_by("loop", maintain_order=True).agg(
    updates=pl.len(),
    lag=pl.col("mean_lag").mean(),
    lag_p95=pl.col("mean_lag").quantile(0.95),
    ess=pl.col("normalized_ess").mean(),
    lowest=pl.col("normalized_ess").min(),
    expected=pl.col("expected_normalized_ess").mean(),
)
for row in summary.iter_rows(named=True):
    print(
        f"{row['loop']:>20}: {row['updates']:3} updates, lag {row['lag']:.2f} (95%: {row['lag_p95']:.2f}), "
        f"ESS {row['ess']:.3f}, lowest {row['lowest']:.3f}, expected {row['expected']:.3f}"
    )
alt.Chart(points.filter(pl.col("loop") != "in turn")).mark_point().encode(
    alt.X("mean_lag", title="mean lag of a batch, versions"),
    alt.Y("normalized_ess", title="normalized effective sample size", scale=alt.Scale(zero=False)),
    alt.Color("loop", title=None),
    alt.Shape("loop", title=None),
).properties(width=560, height=240)
""",
    ),
    (
        TEXT,
        """
## 7. Records at the door

Before a rollout may be trained on, its record is checked where it enters the queue. The check names every
violation at once, each with a code; an empty list means that the record may pass.
""",
    ),
    (
        CODE,
        """
record = {
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
assert kernels.rollout_contract_errors(record) == []

damaged = {**record, "policy_version": -1, "reward": {"correct": float("nan")}}
del damaged["behavior_logprobs"]
for finding in kernels.rollout_contract_errors(damaged):
    print(f"{finding.severity} {finding.code} at {finding.path}")
""",
    ),
    (
        TEXT,
        """
## 8. Publishing weights

The transfer takes a fixed part plus bytes over the bandwidth that is really reached. Publishing less often
divides the cost and ages the data; for a cadence of K the lag before an update runs from 0 to K - 1.
""",
    ),
    (
        CODE,
        """
for name, payload in {"7B in bf16": 14_000_000_000, "1% adapters": 140_000_000}.items():
    seconds = kernels.synchronization_transfer_time(payload, 25.0, setup_seconds=0.15, efficiency=0.80)
    print(f"{name:>12}: {seconds:.3f} s at 25 GB/s, 80% reached")
for every in (1, 2, 4, 8):
    plan = kernels.synchronization_schedule(sync_every=every, updates=16)
    lags = f"mean lag {plan.mean_lag:.1f}, max {plan.max_lag}"
    print(f"every {every}: {plan.synchronization_count:2} publications, {lags}")
""",
    ),
    (
        TEXT,
        """
## 9. Surviving a crash

How often to save: too often costs saves, too seldom costs lost work. Young's rule balances the two to first
order, and the curve is so flat there that the exact optimum is hardly better.
""",
    ),
    (
        CODE,
        """
saving = {"checkpoint_seconds": 180.0, "mtbf_seconds": 36_000.0}
for method in ("young", "daly_higher", "exact"):
    interval = kernels.optimal_checkpoint_interval(**saving, method=method)
    overhead = kernels.checkpoint_cadence(interval, **saving).exact_overhead
    print(f"{method:>12}: every {interval:7.1f} s, overhead {overhead:.3%}")
""",
    ),
    (
        TEXT,
        """
What to save: more than weights. A manifest is one snapshot of counters, data cursor, generators and
versions, as exact JSON. The drill crashes a small training loop and resumes it from everything and in six
ways that leave something out. Only the first equals the run without a crash; none of the others raises an
error. `lagsweep drill` shows what each of them changes.
""",
    ),
    (
        CODE,
        """
rng = np.random.default_rng(SEED)
manifest = sweeps.make_checkpoint(
    optimizer_step=3, current_version=3, published_version=2, dataset_cursor=8, rng=rng
)
row = sweeps.checkpoint_as_dict(manifest)
shown = ("optimizer_step", "current_version", "published_version", "dataset_cursor")
print({name: row[name] for name in shown})

drill = sweeps.recovery_drill(seed=SEED, before=8, after=8)
print(f"whole resume exact: {drill.exact_match}; weights alone exact: {drill.broken_match}")
for report in drill.broken:
    print(f"{report.name:>14}: {report.fault} - {'told apart' if report.caught else 'NOT NOTICED'}")
assert drill.exact_match
assert not drill.broken_match
""",
    ),
    (
        TEXT,
        """
## 10. A real model

The last section will measure generation and a forward pass of a small open model on this machine. It is not
part of this version.
""",
    ),
]


def lab_notebook() -> nbformat.NotebookNode:
    """Put the cells into a notebook, with ids that do not change."""
    makers = {TEXT: nbformat.v4.new_markdown_cell, CODE: nbformat.v4.new_code_cell}
    cells = [
        makers[kind](text.strip("\n"), id=f"lab-{place:02}")
        for place, (kind, text) in enumerate(CELLS, start=1)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def without_noise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take out what differs from run to run: times of execution and the interpreter's details."""
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            # A chart without its drawing would need the network to be seen; a table's text is in its HTML.
            output.get("data", {}).pop("application/vnd.vegalite.v5+json", None)
    return notebook


def main() -> None:
    """Write the notebook without outputs, run it, and store it with them."""
    plain = lab_notebook()
    nbformat.write(plain, ROOT / "examples" / "lab.ipynb")
    executed = lab_notebook()
    NotebookClient(executed, timeout=600, kernel_name="python3").execute()
    published = ROOT / "results" / "published"
    published.mkdir(parents=True, exist_ok=True)
    nbformat.write(without_noise(executed), published / "lab.ipynb")


if __name__ == "__main__":
    main()
