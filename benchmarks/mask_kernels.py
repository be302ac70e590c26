"""Cost of completion masks and of the ESS over ragged groups, beside the plain NumPy forms and the memory.

Masks: the usual form ``cumsum(isin) - isin == 0`` and ours on one and two threads, with the memory's own cost
(reading the tokens once and writing the mask once, one thread) as the floor. ESS: ours over ragged groups, a
``reduceat`` form, and a Python loop over groups. All forms of a case are measured in turn, round by round, in
one process, and agree before anything is timed; ratios are of the same round. Prints one JSON document, then
the tables (``--json`` leaves the tables out).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numba
import numpy as np

from lagsweep import __version__
from lagsweep.kernels import completion_token_mask, effective_sample_size, offsets_from_lengths


def _spread(samples: list[float]) -> dict[str, float]:
    return {"minimum": min(samples), "median": statistics.median(samples), "maximum": max(samples)}


def _rounds(forms: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time every form once per round, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            started = time.perf_counter()
            form()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def _numpy_mask(tokens: np.ndarray, eos_ids: list[int]) -> np.ndarray:
    hit = np.isin(tokens, eos_ids)
    return (np.cumsum(hit, axis=1) - hit) == 0


def _mask_case(rows: int, width: int, dtype: type, eos_ids: list[int], ended: bool, rounds: int) -> dict:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1000, 50_000, (rows, width)).astype(dtype)
    if ended:
        tokens[np.arange(rows), rng.integers(0, width, rows)] = eos_ids[0]
    mask = np.empty(tokens.shape, dtype=bool)
    words = tokens.reshape(-1).view(np.uint64)
    started = time.perf_counter()
    ours = completion_token_mask(tokens, eos_ids)
    first_call = time.perf_counter() - started
    np.testing.assert_array_equal(ours, _numpy_mask(tokens, eos_ids))
    seconds = _rounds(
        {
            "numpy": lambda: _numpy_mask(tokens, eos_ids),
            "one_thread": lambda: completion_token_mask(tokens, eos_ids, threads=1),
            "two_threads": lambda: completion_token_mask(tokens, eos_ids, threads=2),
            "memory": lambda: (np.bitwise_or.reduce(words), mask.fill(True)),
        },
        rounds,
    )
    return {
        "rows": rows,
        "width": width,
        "dtype": np.dtype(dtype).name,
        "eos_ids": len(eos_ids),
        "rows_end": "anywhere" if ended else "never",
        "first_call_seconds": first_call,
        "ns_per_token": {
            name: _spread([s / tokens.size * 1e9 for s in samples]) for name, samples in seconds.items()
        },
        "numpy_over_one_thread": _ratios(seconds, "numpy", "one_thread"),
        "numpy_over_two_threads": _ratios(seconds, "numpy", "two_threads"),
        "one_thread_over_memory": _ratios(seconds, "one_thread", "memory"),
    }


def _ratios(seconds: dict[str, list[float]], above: str, below: str) -> dict[str, float]:
    return _spread([a / b for a, b in zip(seconds[above], seconds[below])])


def _loop_ess(log_weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    result = np.empty(offsets.size - 1)
    for group in range(result.size):
        weights = np.exp(log_weights[offsets[group] : offsets[group + 1]])
        result[group] = weights.sum() ** 2 / (weights * weights).sum()
    return result


def _reduceat_ess(log_weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    starts = offsets[:-1]
    peak = np.repeat(np.maximum.reduceat(log_weights, starts), np.diff(offsets))
    weights = np.exp(log_weights - peak)
    return np.add.reduceat(weights, starts) ** 2 / np.add.reduceat(weights * weights, starts)


def _ess_case(groups: int, mean_length: int, rounds: int) -> dict:
    rng = np.random.default_rng(1)
    lengths = np.maximum(1, rng.lognormal(np.log(mean_length), 0.8, groups)).astype(np.int64)
    offsets = offsets_from_lengths(lengths)
    log_weights = rng.normal(0, 0.5, int(offsets[-1]))
    ours = effective_sample_size(log_weights=log_weights, group_offsets=offsets)
    np.testing.assert_allclose(ours, _loop_ess(log_weights, offsets), rtol=1e-10)
    np.testing.assert_allclose(ours, _reduceat_ess(log_weights, offsets), rtol=1e-10)
    seconds = _rounds(
        {
            "loop": lambda: _loop_ess(log_weights, offsets),
            "reduceat": lambda: _reduceat_ess(log_weights, offsets),
            "kernel": lambda: effective_sample_size(log_weights=log_weights, group_offsets=offsets),
        },
        rounds,
    )
    return {
        "groups": groups,
        "weights": int(offsets[-1]),
        "ns_per_weight": {
            name: _spread([s / offsets[-1] * 1e9 for s in samples]) for name, samples in seconds.items()
        },
        "loop_over_kernel": _ratios(seconds, "loop", "kernel"),
        "reduceat_over_kernel": _ratios(seconds, "reduceat", "kernel"),
    }


def _cell(figures: dict[str, float], digits: int = 2) -> str:
    return f"{figures['median']:.{digits}f} ({figures['minimum']:.{digits}f}…{figures['maximum']:.{digits}f})"


def _tables(document: dict) -> None:
    print(
        "| batch | NumPy, ns/token | 1 thread | 2 threads | memory | NumPy / 1 thread | 1 thread / memory |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in document["masks"]:
        figures = row["ns_per_token"]
        batch = (
            f"{row['rows']:,} × {row['width']} {row['dtype']}, {row['eos_ids']} EOS, end {row['rows_end']}"
        )
        cells = [_cell(figures[name]) for name in ("numpy", "one_thread", "two_threads", "memory")]
        cells += [_cell(row["numpy_over_one_thread"], 1), _cell(row["one_thread_over_memory"])]
        print(f"| {batch} | " + " | ".join(cells) + " |")
    print()
    print("| groups | loop, ns/weight | reduceat | kernel | loop / kernel | reduceat / kernel |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in document["ess"]:
        cells = [_cell(row["ns_per_weight"][name], 1) for name in ("loop", "reduceat", "kernel")]
        cells += [_cell(row["loop_over_kernel"], 1), _cell(row["reduceat_over_kernel"], 1)]
        print(f"| {row['groups']:,} of {row['weights']:,} weights | " + " | ".join(cells) + " |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="Rows of the wide batches, in units of 128."
    )
    parser.add_argument("--json", action="store_true", help="Print the JSON document alone.")
    options = parser.parse_args()
    rows, rounds = options.rows, options.rounds
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    document = {
        "command": "python benchmarks/mask_kernels.py " + " ".join(sys.argv[1:]),
        "commit": commit.stdout.strip(),
        "lagsweep": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "masks": [
            _mask_case(rows, 128, np.int64, [2], True, rounds),
            _mask_case(rows, 128, np.int32, [2], True, rounds),
            _mask_case(rows, 128, np.int32, [2], False, rounds),
            _mask_case(rows, 128, np.int32, [2, 3, 4], True, rounds),
            _mask_case(rows // 16, 2048, np.int32, [2], True, rounds),
        ],
        "ess": [_ess_case(200_000, 8, rounds), _ess_case(5_000, 300, rounds)],
    }
    print(json.dumps(document, indent=1))
    if not options.json:
        print()
        _tables(document)


if __name__ == "__main__":
    main()
