"""Masks, the ESS and the rollout contract beside the plain NumPy forms and the memory's own speed.

Masks: the usual form ``cumsum(isin) - isin == 0`` and ours on one and two threads, with the memory's own cost
(reading the tokens once and writing the mask once, one thread) as the floor. ESS: ours over ragged groups, a
``reduceat`` form, and a Python loop over groups. The contract: a record's token lists, beside the same rules
written with NumPy. All forms of a case agree before anything is timed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep.kernels import (
    completion_token_mask,
    effective_sample_size,
    offsets_from_lengths,
    rollout_contract_errors,
)

MASKS = (
    (1, 128, np.int64, [2], True),
    (1, 128, np.int32, [2], True),
    (1, 128, np.int32, [2], False),
    (1, 128, np.int32, [2, 3, 4], True),
    (16, 2048, np.int32, [2], True),
)  # rows are divided by this, width, dtype, ids that end a row, whether rows end


def _numpy_mask(tokens: np.ndarray, eos_ids: list[int]) -> np.ndarray:
    hit = np.isin(tokens, eos_ids)
    return (np.cumsum(hit, axis=1) - hit) == 0


def _mask_row(rows: int, width: int, dtype: type, eos_ids: list[int], ended: bool, rounds: int) -> list[str]:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1000, 50_000, (rows, width)).astype(dtype)
    if ended:
        tokens[np.arange(rows), rng.integers(0, width, rows)] = eos_ids[0]
    mask = np.empty(tokens.shape, dtype=bool)
    words = tokens.reshape(-1).view(np.uint64)
    np.testing.assert_array_equal(completion_token_mask(tokens, eos_ids), _numpy_mask(tokens, eos_ids))
    forms = {
        "numpy": lambda: _numpy_mask(tokens, eos_ids),
        "one": lambda: completion_token_mask(tokens, eos_ids, threads=1),
        "two": lambda: completion_token_mask(tokens, eos_ids, threads=2),
        "memory": lambda: (np.bitwise_or.reduce(words), mask.fill(True)),
    }
    seconds = in_turn(forms, rounds)
    end = "anywhere" if ended else "never"
    batch = f"{rows:,} × {width} {np.dtype(dtype).name}, {len(eos_ids)} EOS, end {end}"
    each = [ranged(scaled(seconds[name], 1e9 / tokens.size), 2) for name in forms]
    return [
        batch,
        *each,
        ranged(ratios(seconds, "numpy", "one"), 1),
        ranged(ratios(seconds, "one", "memory"), 2),
    ]


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


def _ess_row(groups: int, mean_length: int, rounds: int) -> list[str]:
    rng = np.random.default_rng(1)
    lengths = np.maximum(1, rng.lognormal(np.log(mean_length), 0.8, groups)).astype(np.int64)
    offsets = offsets_from_lengths(lengths)
    weights = rng.normal(0, 0.5, int(offsets[-1]))
    ours = effective_sample_size(log_weights=weights, group_offsets=offsets)
    np.testing.assert_allclose(ours, _loop_ess(weights, offsets), rtol=1e-10)
    np.testing.assert_allclose(ours, _reduceat_ess(weights, offsets), rtol=1e-10)
    forms = {
        "loop": lambda: _loop_ess(weights, offsets),
        "reduceat": lambda: _reduceat_ess(weights, offsets),
        "kernel": lambda: effective_sample_size(log_weights=weights, group_offsets=offsets),
        "memory": lambda: np.bitwise_or.reduce(weights.view(np.uint64)),
    }
    seconds = in_turn(forms, rounds)
    each = [ranged(scaled(seconds[name], 1e9 / weights.size), 2) for name in forms]
    over = [ranged(ratios(seconds, name, "kernel")) for name in ("loop", "reduceat")]
    return [f"{groups:,} of {weights.size:,} weights", *each, *over]


def _record(tokens: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {
        "sample_id": "p0-r0",
        "prompt_id": "p0",
        "policy_version": 3,
        "prompt_tokens": rng.integers(0, 50_000, 16).tolist(),
        "response_tokens": [*rng.integers(3, 50_000, tokens - 1).tolist(), 2],
        "behavior_logprobs": (-rng.exponential(1.0, tokens)).tolist(),
        "decoding": {"temperature": 1.0},
        "reward": 1.0,
        "stop_reason": "eos",
        "verifier_version": "v1",
    }


def _numpy_contract(record: dict[str, Any]) -> bool:
    tokens, logprobs = np.array(record["response_tokens"]), np.array(record["behavior_logprobs"])
    prompt = np.array(record["prompt_tokens"])
    kinds = tokens.dtype.kind == "i" and prompt.dtype.kind == "i" and logprobs.dtype.kind == "f"
    ranges = bool((tokens >= 0).all() and (prompt >= 0).all() and (logprobs <= 1e-6).all())
    return kinds and ranges and tokens.shape == logprobs.shape and bool(np.isfinite(logprobs).all())


def _contract_row(tokens: int, rounds: int) -> list[str]:
    good = _record(tokens)
    bad = good | {"behavior_logprobs": good["behavior_logprobs"][:-1]}
    assert _numpy_contract(good) == (not rollout_contract_errors(good))
    assert _numpy_contract(bad) == (not rollout_contract_errors(bad))
    values = np.zeros(2 * tokens, np.uint64)
    times = max(1, 200_000 // tokens)
    forms = {
        "numpy": lambda: [_numpy_contract(good) for _ in range(times)],
        "ours": lambda: [rollout_contract_errors(good) for _ in range(times)],
        "memory": lambda: [np.bitwise_or.reduce(values) for _ in range(times)],
    }
    seconds = in_turn(forms, rounds)
    each = [ranged(scaled(seconds[name], 1e9 / times / tokens), 1) for name in forms]
    return [f"{tokens:,} tokens", *each, ranged(ratios(seconds, "ours", "numpy"), 2)]


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure masks, the ESS and the contract, and how fast the memory is."""
    rows = 1_600 if tiny else 200_000
    words = np.ones((1 << 20) if tiny else (1 << 25), np.uint64)
    plain = in_turn({"read": lambda: np.bitwise_or.reduce(words)}, max(3, rounds))
    speed = [words.nbytes / seconds / 1e9 for seconds in plain["read"]]
    groups = ((200, 8),) if tiny else ((200_000, 8), (5_000, 300))
    found = Section("Masks, the ESS and the contract")
    found.text += [
        "Memory: a plain read of "
        f"{words.nbytes / 2**20:,.0f} MiB by one thread goes at {ranged(speed)} GB/s on this machine, in "
        "this run. "
        'The column "memory" reads the same bytes (and writes the mask, where there is one).',
        table(
            [
                "masks, ns a token",
                "NumPy",
                "1 thread",
                "2 threads",
                "memory",
                "NumPy / 1 thread",
                "1 thread / memory",
            ],
            [
                _mask_row(rows // share, width, dtype, eos_ids, ended, rounds)
                for share, width, dtype, eos_ids, ended in MASKS
            ],
        ),
        table(
            [
                "ESS of groups, ns a weight",
                "loop",
                "reduceat",
                "kernel",
                "memory",
                "loop / kernel",
                "reduceat / kernel",
            ],
            [_ess_row(count, length, rounds) for count, length in groups],
        ),
        "The contract takes a record as it comes out of a JSON line, with lists. The NumPy form makes arrays "
        "of the lists and looks at kinds, ranges and lengths alone; ours also tells what is wrong and where.",
        table(
            ["contract, ns a token", "NumPy", "ours", "memory", "ours / NumPy"],
            [_contract_row(tokens, rounds) for tokens in ((100,) if tiny else (100, 1_000, 10_000))],
        ),
    ]
    return found
