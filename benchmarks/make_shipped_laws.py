"""Make the real length laws that come with the package, from the public traces they were taken from.

Usage: ``python benchmarks/make_shipped_laws.py TRACES [OUT]``, where TRACES holds

- ``rl_checkpoint_aime_lengths_open_instruct.csv`` with columns run, rl_step, item, sample, output_tokens
  (allenai/open-instruct, commit 6ca4ed69, ``cse-579-experiments/results``),
- ``azure2023_conv.csv`` with output_tokens (Azure/AzurePublicDataset, commit b469a113,
  ``data/AzureLLMInferenceTrace_conv.csv``, GeneratedTokens),
- ``mooncake_conversation.csv`` with output_tokens (kvcache-ai/Mooncake, commit 3b5a5941,
  ``FAST25-release/traces``, the conversation trace),
- ``agent_rollouts_nemo_gym.csv`` with columns env, task, repeat, output_tokens, duration_s
  (NVIDIA-NeMo/Gym, commit eace507c, ``reports/prime_environments/rollouts.csv``).

OUT is ``sweeps/laws/shipped_laws`` if not given. A law is one small CSV file: tokens and counts, or one row
per rollout where the law keeps pairs or groups. ``index.json`` says what each is; ``SOURCES.md`` is kept by
hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl

Law = tuple[dict[str, Any], pl.DataFrame]

_OPEN_INSTRUCT = {
    "source": "https://github.com/allenai/open-instruct, commit 6ca4ed69, cse-579-experiments/results",
    "license": "Apache-2.0",
    "attribution": "By the Allen Institute for AI; token counts only, made into a table.",
}
_AZURE = {
    "source": "https://github.com/Azure/AzurePublicDataset, commit b469a113, AzureLLMInferenceTrace_conv.csv",
    "license": "CC-BY-4.0",
    "attribution": "By Microsoft Azure; made into a table of counts. Cite: P. Patel et al., Splitwise: "
    "Efficient generative LLM inference using phase splitting, ISCA 2024.",
}
_MOONCAKE = {
    "source": "https://github.com/kvcache-ai/Mooncake, commit 3b5a5941, FAST25-release/traces",
    "license": "Apache-2.0",
    "attribution": "By the Mooncake authors; made into a table of counts.",
}
_NEMO_GYM = {
    "source": "https://github.com/NVIDIA-NeMo/Gym, commit eace507c, reports/prime_environments/rollouts.csv",
    "license": "Apache-2.0",
    "attribution": "By NVIDIA Corporation; output tokens, seconds and task numbers only.",
}
_COLLAPSE = (
    " This run's length penalty makes the responses collapse to about 8 tokens by step 300: a record of that "
    "failure, not a law to plan with."
)


def _counts(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by(pl.col("output_tokens").alias("tokens")).agg(pl.len().alias("count")).sort("tokens")


def _aime_laws(folder: Path) -> dict[str, Law]:
    lengths = pl.read_csv(folder / "rl_checkpoint_aime_lengths_open_instruct.csv")
    laws: dict[str, Law] = {}
    for run, label, steps in (
        ("baseline", "aime-rl", (100, 500, 1000)),
        ("length_shaped", "aime-rl-shaped", (100, 300, 1000)),
    ):
        for step in steps:
            part = lengths.filter((pl.col("run") == run) & (pl.col("rl_step") == step))
            about = (
                f"Response lengths of an RL checkpoint on AIME, 30 items with 32 samples each, step {step} "
                f"of run {run}.{_COLLAPSE if run == 'length_shaped' else ''}"
            )
            laws[f"{label}-{step}"] = ({"kind": "counts", "about": about, **_OPEN_INSTRUCT}, _counts(part))
    part = lengths.filter((pl.col("run") == "baseline") & (pl.col("rl_step") == 1000)).sort("item", "sample")
    about = (
        "Response lengths of an RL checkpoint on AIME, step 1000 of run baseline, grouped by item: 30 groups "
        "of 32. Which samples belong to an item is inferred from their order."
    )
    rows = part.select(pl.col("output_tokens").alias("tokens"), pl.col("item").alias("group"))
    laws["aime-rl-1000-grouped"] = ({"kind": "groups", "about": about, **_OPEN_INSTRUCT}, rows)
    return laws


def _served_laws(folder: Path) -> dict[str, Law]:
    azure = _counts(pl.read_csv(folder / "azure2023_conv.csv"))
    mooncake = _counts(pl.read_csv(folder / "mooncake_conversation.csv"))
    about = "Generated tokens of conversation requests"
    azure_about = f"{about} served by Azure in November 2023."
    mooncake_about = f"{about} in the conversation trace of Mooncake, FAST 2025."
    return {
        "azure-2023-conversation": ({"kind": "counts", "about": azure_about, **_AZURE}, azure),
        "mooncake-conversation": ({"kind": "counts", "about": mooncake_about, **_MOONCAKE}, mooncake),
    }


def _agent_laws(folder: Path) -> dict[str, Law]:
    rollouts = pl.read_csv(folder / "agent_rollouts_nemo_gym.csv")
    about = "Output tokens of a Qwen3.6-35B-A3B agent in tool environments, 70 tasks with 8 repeats each, "
    tokens = pl.col("output_tokens").alias("tokens")
    pairs = rollouts.select(tokens, pl.col("duration_s").alias("seconds")).sort("tokens", "seconds")
    group = (pl.col("env") + "-" + pl.col("task").cast(pl.String)).alias("group")
    pairs_about = f"{about}with the seconds of the whole rollout, its decoding included."
    return {
        "nemo-gym-agents": ({"kind": "pairs", "about": pairs_about, **_NEMO_GYM}, pairs),
        "nemo-gym-agents-grouped": (
            {"kind": "groups", "about": f"{about}grouped by task.", **_NEMO_GYM},
            rollouts.select(tokens, group),
        ),
    }


def main(traces: str, out: str = "sweeps/laws/shipped_laws") -> None:
    """Write every law and the index."""
    folder, target = Path(traces), Path(out)
    target.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, (entry, table) in (_aime_laws(folder) | _served_laws(folder) | _agent_laws(folder)).items():
        table.write_csv(target / f"{name}.csv")
        rollouts = int(table["count"].sum()) if "count" in table.columns else table.height
        index[name] = {**entry, "rollouts": rollouts}
    (target / "index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
