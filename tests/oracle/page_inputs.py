"""What the blocks of pages take for granted: files of the reader's, and names that the text introduces."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .page_blocks import blocks_of, commands_of

TESTS = Path(__file__).resolve().parents[1]
Names = dict[str, Any]


def _readme(names: Names) -> None:
    _command("run aime-cap-lag-cadence --seeds 2 --quiet")


def _checkpoints(names: Names) -> None:
    from lagsweep import PipelineConfig

    Path("run/step-40").mkdir(parents=True)
    Path("run/step-40/weights.safetensors").write_bytes(b"weights")
    names["config"] = PipelineConfig(duration_seconds=1000)


def _ess_and_masks(names: Names) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    names["log_weights"] = rng.normal(0, 0.2, 40)
    names["rows"] = rng.normal(0, 0.2, (4, 10))
    names["active"] = names["mask"] = names["completion_mask"] = names["tool_mask"] = np.ones((4, 10), bool)
    names["flat"] = rng.normal(0, 0.2, 12)
    names["lengths"] = np.array([4, 2, 3, 3])
    names["log_ratio"] = names["rows"]
    names["offsets"] = np.array([0, 4, 6, 9, 12])
    names["trainer_logprobs"] = -1 + names["rows"]
    names["behavior_logprobs"] = -np.ones((4, 10))
    names["tokens"] = rng.integers(1, 9, (4, 10))
    names["eos_ids"] = [2, 3]
    names["truncated"] = np.zeros(4, bool)
    names["prompt_and_response_mask"] = np.arange(10) >= np.full((4, 1), 3)
    names["loss"] = names["rows"]


def _lengths(names: Names) -> None:
    import polars as pl

    tokens = [100 + 7 * k for k in range(60)]
    frame = pl.DataFrame({"output_tokens": tokens, "prompt_id": [k // 4 for k in range(60)]})
    frame.write_csv("rollouts.csv")
    frame.write_parquet("rollouts.parquet")
    pl.DataFrame({"output_tokens": tokens, "seconds": [0.5 * k for k in range(60)]}).write_csv("agents.csv")


def _ess(names: Names) -> None:
    source = TESTS / "data" / "rollouts" / "real_rollouts_smollm2.jsonl"
    Path("rollouts.jsonl").write_bytes(source.read_bytes())


def _contract(names: Names) -> None:
    import json

    source = TESTS / "data" / "rollouts" / "real_rollouts_smollm2.jsonl"
    lines = source.read_text(encoding="utf-8").splitlines()
    names["records"] = [json.loads(line) for line in lines[:8]]
    names["record"] = names["records"][0]
    first, second, third = (json.loads(line) for line in lines[:3])
    short = second | {"behavior_logprobs": second["behavior_logprobs"][:-1]}
    reward = third | {"reward": {"correctness": float("nan")}}
    again = first | {"stop_reason": "length"}
    damaged = [lines[0], "", *map(json.dumps, (short, reward, again)), lines[3][:70]]
    Path("rollouts.jsonl").write_text("\n".join(damaged), encoding="utf-8")


def _report(names: Names) -> None:
    page = TESTS.parent / "docs" / "choosing-settings.md"
    made = next(block for block in blocks_of(page) if block.role == "commands")
    words, _ = commands_of(made)[0]
    _command(shlex.join([*words[1:], "--quiet"]))


def _command(line: str) -> None:
    from lagsweep.sweeps.cli.main import main

    with contextlib.suppress(SystemExit):
        main(shlex.split(line))


INPUTS: dict[str, Callable[[Names], None]] = {
    "README.md": _readme,
    "checkpoints-and-recovery.md": _checkpoints,
    "ess.md": _ess,
    "ess-and-masks.md": _ess_and_masks,
    "length-laws.md": _lengths,
    "report-and-recommend.md": _report,
    "rollout-contract.md": _contract,
}
