"""Samples of an engine that tell the length of a step: decoding alone, with the same requests throughout.

A sample's speed is over the time since the one before (vLLM) or the steps before (SGLang), what runs and what
the cache holds are of its instant. So only those are used in which nothing was prefilled and the number of
requests is that of the sample before: step = running x accepted tokens / tokens a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels.errors import many
from .engine_log import EngineLog
from .log_findings import LogFinding

_CHANGED = 0.25
_ALIVE = 10.0
_NEARLY_FULL = 0.9


@dataclass(frozen=True)
class Windows:
    """What can be fitted.

    Attributes
    ----------
    running, cache : ndarray of float64
        Requests in a step, and tokens in the cache (or the share of it, where its size is not known); of
        several ranks that step together the most of any.
    step_seconds : ndarray of float64
    rows : ndarray of int
        Places in the log's frame.
    decoding, pressed : int
        Samples of decoding alone, whatever ran before, and those of them in which requests waited for room
        in a cache that was nearly full.
    accepted_tokens : float
        Tokens that a step gives a request, in the middle; 1 without speculation, or where it is not said.
    ranks : int
    findings : tuple of LogFinding
        Which samples were not used, and why.
    """

    running: np.ndarray
    cache: np.ndarray
    step_seconds: np.ndarray
    rows: np.ndarray
    decoding: int
    pressed: int
    accepted_tokens: float
    ranks: int
    findings: tuple[LogFinding, ...]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.running)


def windows_of(log: EngineLog) -> Windows:
    """Choose the samples that can be fitted.

    Parameters
    ----------
    log : EngineLog
    """
    frame = log.frame
    at = {name: frame[name].to_numpy().astype(np.float64) for name in frame.columns}
    running, speed = at["running"], at["generated_tokens_per_second"]
    cache = at["cache_tokens"] if np.isfinite(at["cache_tokens"]).any() else at["cache_fraction"]
    found: list[LogFinding] = []
    kept = _without(
        np.ones(len(frame), dtype=bool), ~(running > 0) | ~(speed > 0), "running", "nothing decoded", found
    )
    prompts = np.nan_to_num(at["prompt_tokens_per_second"]) > 0
    prompts |= np.nan_to_num(at["prefills"]) > 0
    kept = _without(kept, prompts, "prompt_tokens_per_second", "prompts were prefilled in between", found)
    decoding = kept
    pressed = (
        decoding & (np.nan_to_num(at["waiting"]) > 0) & (np.nan_to_num(at["cache_fraction"]) > _NEARLY_FULL)
    )
    before = np.full(len(frame), np.nan)
    before[1:] = np.where(np.diff(at["series"]) == 0, running[:-1], np.nan)
    with np.errstate(invalid="ignore"):
        changed = np.abs(running - before) > _tolerance(log, running)
    kept = _without(kept, changed, "running", "other requests ran in the sample before", found)
    kept = _without(kept, ~np.isfinite(cache), "cache_tokens", "the cache is not known", found)
    accepted = np.where(np.isfinite(at["accepted_tokens"]), at["accepted_tokens"], 1.0)
    ranks = len(np.unique(at["rank"]))
    if ranks > 1:
        running_all, cache_all = _fullest(at["seconds"], at["rank"], running, cache)
        words = (
            f"{ranks} ranks step together, as long as the one with the most: that one's requests and cache"
        )
        found.append(LogFinding("ranks", "running", int(kept.sum()), "converted", words))
    else:
        running_all, cache_all = running, cache
    rows = np.flatnonzero(kept)
    return Windows(
        running_all[rows],
        cache_all[rows],
        (running * accepted)[rows] / speed[rows],
        rows,
        int(decoding.sum()),
        int(pressed.sum()),
        float(np.median(accepted[rows])) if len(rows) else 1.0,
        ranks,
        tuple(found),
    )


def _tolerance(log: EngineLog, running: np.ndarray) -> np.ndarray:
    """Return by how many requests a sample may differ from the one before.

    SGLang's speed is over 40 steps, in which none need change; vLLM's over ten seconds, in which few do.
    """
    return np.zeros(len(running)) if log.engine == "sglang" else _CHANGED * running


def _without(
    kept: np.ndarray, dropped: np.ndarray, about: str, words: str, found: list[LogFinding]
) -> np.ndarray:
    count = int((kept & dropped).sum())
    if count:
        found.append(LogFinding("not_used", about, count, "left out", f"{many(count, 'sample')}: {words}"))
    return kept & ~dropped


def _fullest(
    seconds: np.ndarray, rank: np.ndarray, running: np.ndarray, cache: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return of each sample the most requests and the fullest cache of all ranks at its time.

    A rank is what its latest sample says, for as long as ten times the usual time between two of a rank.
    """
    order = np.argsort(seconds, kind="stable")
    latest: dict[float, tuple[float, float, float]] = {}
    apart = np.concatenate([np.diff(seconds[rank == one]) for one in np.unique(rank)])
    alive = _ALIVE * max(float(np.median(apart[apart > 0])) if (apart > 0).any() else 0.0, 1e-9)
    most, fullest = running.copy(), cache.copy()
    for row in order.tolist():
        now = float(seconds[row])
        latest[float(rank[row])] = now, float(running[row]), float(cache[row])
        there = [one for one in latest.values() if now - one[0] <= alive]
        most[row] = max(one[1] for one in there)
        fullest[row] = max(one[2] for one in there)
    return most, fullest
