"""The length of an engine's step fitted to samples of its log: step = a + b running + c tokens of cache.

Where the same number runs throughout only ``a + b running`` is known. What the samples do not tell is
refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import many
from ..checks import text_of
from ..engines.estimate import Estimate, interval
from .engine_log import EngineLog
from .engine_windows import Windows, windows_of
from .log_findings import LogFinding
from .steps_robustly import RobustLine, drawn_lines, robust_line

FEWEST = 10
_FEW_RUNNING = 3
_POOR = 0.15
_SAME = 1.05
_WORDS = {
    "step_seconds": "fixed part of a step",
    "step_seconds_per_rollout": "for each request in it",
    "step_seconds_per_context_token": "for each token of cache",
    "step_seconds_per_cache": "for the whole cache",
}


@dataclass(frozen=True)
class EngineSamplesFit:
    """A step fitted to samples, or why it was not.

    Attributes
    ----------
    coefficients : tuple of Estimate
        Seconds, with 95 % intervals: of ``step_seconds`` (the whole ``a + b running`` where the same number
        runs throughout), ``step_seconds_per_rollout``, and ``step_seconds_per_context_token`` (or
        ``step_seconds_per_cache`` where the size of the cache is not known). Empty if refused.
    refusals : tuple of str
        Why there is no fit.
    constant_running : float, optional
        How many ran throughout, where nearly the same did.
    samples, kept : int
        Those that could be fitted, and those that were not dropped as far off.
    median_error, kept_r2 : float
        Of the relative error of a step's length, all samples that could be fitted; share of the variance of
        the kept ones that the line explains.
    step_interval : Estimate, optional
        The step at the middle of what was seen.
    windows : Windows
    errors : ndarray of float64
        Told over seen less 1, of each window.
    notes : tuple of str
        What the samples do not tell, and what to mind.
    findings : tuple of LogFinding
    log : EngineLog
    """

    log: EngineLog
    windows: Windows
    findings: tuple[LogFinding, ...]
    coefficients: tuple[Estimate, ...] = ()
    refusals: tuple[str, ...] = ()
    constant_running: float | None = None
    samples: int = 0
    kept: int = 0
    median_error: float = float("nan")
    kept_r2: float = float("nan")
    step_interval: Estimate | None = None
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    kept_rows: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write the step's parts with their intervals, or why there are none, in 80 columns."""
        from .text import engine_samples_text

        return engine_samples_text(self)

    def to_toml(self, name: str = "engine.toml") -> str:
        """Write the engine and what it was fitted on as TOML; `name` is what the file will be called."""
        from .sampled_engine import sampled_engine_toml

        return sampled_engine_toml(self, text_of("name", name, "Give a file's name."))

    @property
    def refused(self) -> str:
        """Return why there is no fit, in one text; empty if there is one."""
        return "; ".join(self.refusals)

    def value(self, name: str) -> float:
        """Return a coefficient, 0 where it is none of the fit's."""
        known = {one.name: one.value for one in self.coefficients}
        return known.get(text_of("name", name, "Give a coefficient's name."), 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        facts: dict[str, Any] = {
            "source": self.log.source, "engine": self.log.engine, "samples": len(self.log),
            "could_be_fitted": self.samples, "kept": self.kept, "refused": list(self.refusals),
            "constant_running": self.constant_running, "median_error": self.median_error,
            "kept_r2": self.kept_r2, "coefficients": [one.as_dict() for one in self.coefficients],
            "notes": list(self.notes), "columns": dict(self.log.columns),
            "findings": [one._asdict() for one in self.findings],
        }  # fmt: skip
        return facts


def fit_engine_samples(log: EngineLog) -> EngineSamplesFit:
    """Fit the length of a step to an engine's samples.

    Parameters
    ----------
    log : EngineLog
        As :func:`read_engine_log` gives.

    Returns
    -------
    EngineSamplesFit
        With ``refusals`` in place of coefficients where the samples do not tell them.

    Raises
    ------
    ConfigError
        If it is no log of an engine.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from lagsweep.sweeps.logs.engine_log import read_engine_log
    >>> path = Path(tempfile.mkdtemp()) / "engine.csv"
    >>> rows = [f"{i},{n},{c},{n / (0.01 + 1e-4 * n + 1e-7 * c)}" for i, (n, c) in enumerate(
    ...     (n, c) for n in (4, 8, 16, 32) for c in (1000 * n, 2000 * n, 5000 * n, 5100 * n))]
    >>> _ = path.write_text("seconds,running,cache_tokens,generated_tokens_per_second\\n" + "\\n".join(rows))
    >>> fit = fit_engine_samples(read_engine_log(path))
    >>> round(fit.value("step_seconds"), 6), round(fit.value("step_seconds_per_rollout"), 6)
    (0.01, 0.0001)
    """
    instance("log", log, EngineLog, "Give what read_engine_log returns.")
    windows = windows_of(log)
    base = EngineSamplesFit(log, windows, (*log.findings, *windows.findings), samples=len(windows))
    refusals = _before(windows)
    if refusals:
        return _with(base, refusals=tuple(refusals))
    constant = _constant(windows)
    columns, names = _columns(windows, constant, log)
    line = robust_line(columns, windows.step_seconds)
    if constant is None and (constant := _constant(windows, line.kept)) is not None:
        columns, names = _columns(windows, constant, log)
        line = robust_line(columns, windows.step_seconds)
    median = float(np.median(np.abs(line.errors)))
    refusals = _after(windows, median)
    facts = {"median_error": median, "kept": int(line.kept.sum()), "errors": line.errors,
             "kept_rows": line.kept, "constant_running": constant}  # fmt: skip
    if refusals:
        return _with(base, refusals=tuple(refusals), **facts)
    drawn = drawn_lines(columns, windows.step_seconds)
    estimates = tuple(
        Estimate(name, _words(name, constant), "s", float(value), *interval(drawn[:, place], float(value)))
        for place, (name, value) in enumerate(zip(names, line.coefficients.tolist()))
    )
    middle = np.median(columns, axis=0)
    step = float(middle @ line.coefficients)
    typical = Estimate(
        "typical_step", "a step in the middle of these", "s", step, *interval(drawn @ middle, step)
    )
    made = _with(
        base, coefficients=estimates, step_interval=typical, kept_r2=_explained(windows, line), **facts
    )
    return _with(made, notes=tuple(_notes(made, drawn, names)))


def _with(one: EngineSamplesFit, **changes: Any) -> EngineSamplesFit:
    from dataclasses import replace

    return replace(one, **changes)


def _words(name: str, constant: float | None) -> str:
    if name == "step_seconds" and constant is not None:
        return f"of a step with {constant:g} requests, without its cache"
    return _WORDS[name]


def _constant(windows: Windows, kept: np.ndarray | None = None) -> float | None:
    """Return how many run, if nearly the same number does throughout, or in the windows that were kept."""
    running = windows.running if kept is None else windows.running[kept]
    return float(np.median(running)) if running.max() <= _SAME * running.min() else None


def _columns(windows: Windows, constant: float | None, log: EngineLog) -> tuple[np.ndarray, list[str]]:
    """Return what a step's length depends on, a column each, and the coefficients' names."""
    ones = np.ones(len(windows))
    tokens = log.frame["cache_tokens"].null_count() < len(log.frame)
    last = "step_seconds_per_context_token" if tokens else "step_seconds_per_cache"
    if constant is not None:
        return np.column_stack([ones, windows.cache]), ["step_seconds", last]
    columns = np.column_stack([ones, windows.running, windows.cache])
    return columns, ["step_seconds", "step_seconds_per_rollout", last]


def _before(windows: Windows) -> list[str]:
    """Say what is missing before anything is fitted."""
    count = len(windows)
    found = []
    if count < FEWEST:
        found.append(f"{many(count, 'sample')} of decoding alone, at least {FEWEST} are needed")
    if _only_few(windows):
        low, high = windows.running.min(), windows.running.max()
        found.append(f"{low:g} to {high:g} requests ran in them: that says nothing of a busy engine")
    if found and windows.pressed > 0.5 * windows.decoding:
        found.append(_pressed(windows))
    return found


def _only_few(windows: Windows) -> bool:
    """Tell whether so few requests ran that neither their number nor their cache says anything."""
    if not len(windows):
        return False
    low, high = float(windows.running.min()), float(windows.running.max())
    if high > _FEW_RUNNING or _constant(windows) is not None:
        return False
    alone = windows.cache[windows.running == low]
    return len(alone) < FEWEST or float(alone.max()) < 1.2 * float(alone.min())


def _pressed(windows: Windows) -> str:
    return (
        f"requests wait for room in a full cache in {windows.pressed} of {many(windows.decoding, 'sample')}: "
        "some lose their places, and what runs at a moment is not what ran in the steps"
    )


def _after(windows: Windows, median: float) -> list[str]:
    """Say why a line does not fit, where it does not."""
    if median <= _POOR:
        return []
    found = [f"no line fits: half of the samples are off by more than {median:.0%}"]
    number, low, high = _at_the_same_number(windows)
    if high > 2 * low:
        found.append(
            f"with {number:g} running a step seems to take {low:.2g} to {high:.2g} s: idle time, or "
            "speculation whose accepted tokens the log does not say"
        )
    return found


def _at_the_same_number(windows: Windows) -> tuple[float, float, float]:
    """Return the most frequent number of requests, and the shortest and longest step with it."""
    numbers, counts = np.unique(windows.running, return_counts=True)
    number = float(numbers[np.argmax(counts)])
    steps = windows.step_seconds[windows.running == number]
    return number, float(steps.min()), float(steps.max())


def _explained(windows: Windows, line: RobustLine) -> float:
    seen = windows.step_seconds[line.kept]
    told = seen * (1 + line.errors[line.kept])
    around = float(((seen - seen.mean()) ** 2).sum())
    return 1 - float(((seen - told) ** 2).sum()) / around if around else float("nan")


def _notes(fit: EngineSamplesFit, drawn: np.ndarray, names: list[str]) -> list[str]:
    """Say what the samples do not tell."""
    windows = fit.windows
    found = []
    if fit.constant_running is not None:
        found.append(f"running is {fit.constant_running:g} throughout: how a step grows with it is not told")
    else:
        parts = drawn * np.median(np.column_stack(_parts(windows)), axis=0)
        each, cache = parts[:, 1], parts[:, 2]
        if (each + cache).std() < 0.7 * max(each.std(), cache.std()):
            found.append(
                "the time of a request and that of its cache are not told apart: their sum is "
                f"{1e3 * (each + cache).mean():.3g} ms of a typical step"
            )
    if names[-1] == "step_seconds_per_cache":
        found.append("the size of the cache is not in the log: give --kv-cache-tokens for seconds a token")
    dropped = fit.samples - fit.kept
    if dropped > 0.1 * fit.samples:
        share = dropped / fit.samples
        found.append(f"{share:.0%} of the samples are far off and were dropped: idle or prefill time")
    if windows.pressed > 0.5 * windows.decoding:
        found.append(_pressed(windows))
    if windows.accepted_tokens > 1:
        found.append(
            f"a step gives a request {windows.accepted_tokens:.3g} tokens (speculation): seconds are of a "
            "step, and those of the engine's file of a token"
        )
    return found


def _parts(windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(len(windows)), windows.running, windows.cache


def coefficients_of_samples(fit: EngineSamplesFit) -> Mapping[str, float]:
    """Return the engine's settings that the samples tell, by name."""
    known = ("step_seconds", "step_seconds_per_rollout", "step_seconds_per_context_token")
    return {one.name: one.value for one in fit.coefficients if one.name in known}
