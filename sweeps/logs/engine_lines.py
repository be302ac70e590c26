"""Lines of vLLM's and SGLang's consoles as records."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from ...kernels.errors import NO_VALUE, ConfigError

_VLLM = re.compile(
    r"(?:INFO (\d\d-\d\d \d\d:\d\d:\d\d).*?)?(?:Engine (\d+): )?Avg prompt throughput: ([\d.]+) tokens/s, "
    r"Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs, (.*)$"
)
_VLLM_REST = {
    "Waiting": re.compile(r"(?:Waiting|Pending): (\d+) reqs"),
    "GPU KV cache usage": re.compile(r"GPU KV cache usage: ([\d.]+)%"),
}
_VLLM_POOL = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_VLLM_ACCEPTED = re.compile(r"Mean acceptance length: ([\d.]+)")
_SGLANG = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)([^\]]*)\] (Decode|Prefill) batch(?: \[\d+\])?[.,]? ?(.*)$"
)
_SGLANG_POOL = re.compile(r"max_total_num_tokens=(\d+)")
_RANK = re.compile(r"\bDP(\d+)")
_PAIR = re.compile(r"([#a-zA-Z][^:,]*): ([-+]?\d[\d.]*(?:[eE][-+]?\d+)?)(?:,|$)")


def engine_records(text: str, name: str) -> list[dict[str, Any]]:
    """Turn a console's text into a record for each line of decoding.

    Parameters
    ----------
    text : str
    name : str
        The file's, for the message.

    Raises
    ------
    ConfigError
        If there is no such line.

    Examples
    --------
    >>> text = ("[2026-01-04 07:38:42 TP0] Prefill batch, #new-seq: 1, #queue-req: 0,\\n"
    ...         "[2026-01-04 07:38:43 TP0] Decode batch, #running-req: 8, #token: 900, "
    ...         "gen throughput (token/s): 80.0, #queue-req: 0,")
    >>> record = engine_records(text, "a.log")[0]
    >>> record["#running-req"], record["prefill_since_last"]
    (8.0, 1)
    """
    records: list[dict[str, Any]] = []
    since: dict[int, int] = {}
    pool = 0
    for line in text.splitlines():
        if found := _VLLM.search(line):
            records.append(_vllm(found, pool))
        elif found := _SGLANG.search(line):
            _sglang(found, since, pool, records)
        elif found := _VLLM_POOL.search(line) or _SGLANG_POOL.search(line):
            pool = int(found[1].replace(",", ""))
        elif (found := _VLLM_ACCEPTED.search(line)) and records:
            records[-1]["Mean acceptance length"] = float(found[1])
    if not records:
        rule = "has no line of an engine that decodes (vLLM, SGLang)"
        raise ConfigError(name, rule, NO_VALUE, "Give the engine's own log, or its metrics as CSV.")
    times = [record["t_s"] for record in records if record["t_s"] is not None]
    for record in records:
        if record["t_s"] is not None:
            record["t_s"] -= times[0]
    return records


def _seconds(text: str | None, form: str) -> float | None:
    # vLLM prints no year; a leap year lets the 29th of February be read.
    return None if text is None else datetime.strptime(text, form).timestamp()


def _vllm(found: re.Match[str], pool: int) -> dict[str, Any]:
    when = _seconds(f"2024-{found[1]}" if found[1] else None, "%Y-%m-%d %H:%M:%S")
    record: dict[str, Any] = {
        "t_s": when,
        "engine": int(found[2] or 0),
        "Avg prompt throughput": float(found[3]),
        "Avg generation throughput": float(found[4]),
        "Running": float(found[5]),
    }
    for name, pattern in _VLLM_REST.items():
        if rest := pattern.search(found[6]):
            record[name] = float(rest[1])
    return record | ({"kv_pool_tokens": pool} if pool else {})


def _sglang(found: re.Match[str], since: dict[int, int], pool: int, records: list[dict[str, Any]]) -> None:
    """Count a prefill, or add a line of decoding."""
    by_rank = _RANK.search(found[2])
    rank = int(by_rank[1]) if by_rank else 0
    if found[3] == "Prefill":
        since[rank] = since.get(rank, 0) + 1
        return
    pairs = {pair[1].strip(): float(pair[2]) for pair in _PAIR.finditer(found[4])}
    record = {"t_s": _seconds(found[1], "%Y-%m-%d %H:%M:%S"), "rank": rank, **pairs}
    record["prefill_since_last"] = since.pop(rank, 0)
    records.append(record | ({"kv_pool_tokens": pool} if pool else {}))
