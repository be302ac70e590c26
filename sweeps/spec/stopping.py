"""Add seeds only where they are needed: rules for ``until``, and the rounds that they ask for.

A sweep with a rule is looked at after 32, 64, 128, … seeds, up to all K looks that its seeds allow. Cells
that have what the rule asks get no more seeds.

- ``METRIC within 1%`` or ``METRIC within 0.5``: a cell stops when the half width of its Student interval,
taken at confidence ``1 - alpha/K``, is at most that share of the mean's size, or that amount. By the union
bound over the K looks the interval at the stop covers the true mean with probability at least ``1 -
alpha``, where each single Student interval does (exactly for normal values, and nearly for means of 32 and
more seeds). Stopping on an ordinary 95% interval would not: each look is another chance to stop on an
interval that misses. - ``best METRIC resolved`` (or ``lowest``): all configurations of a seed see the same
rollouts, so the leader and each other cell are compared by their paired differences. A cell stops when the
difference's one-sided interval at ``1 - alpha / (K (cells - 1))`` excludes zero; with probability at least
``1 - alpha`` the truly best cell is never stopped that way. ``best METRIC resolved within 1%`` also stops
cells whose difference is surely smaller than that.

``at 99%`` at the end changes ``1 - alpha`` from 95%.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.errors import ConfigError, nearest
from ...kernels.intervals import student
from ...kernels.pipeline.metrics import (
    GENERAL_METRICS,
    METRIC_BY_NAME,
    METRICS,
    Metric,
    metrics_of_options,
    with_nan,
)

if TYPE_CHECKING:
    from .spec import SweepSpec

FIRST_LOOK = 32
_NUMBER = r"(?P<amount>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*(?P<percent>%)?"
_CONFIDENCE = r"(?:\s+at\s+(?P<confidence>\d+(?:\.\d+)?)\s*%)?"
_WITHIN = re.compile(rf"(?P<metric>\w+)\s+within\s+{_NUMBER}{_CONFIDENCE}")
_BEST = re.compile(
    rf"(?:difference\s+to\s+(?:the\s+)?)?(?P<which>best|highest|lowest)\s+(?:of\s+)?(?P<metric>\w+)\s+resolved"
    rf"(?:\s+within\s+{_NUMBER})?{_CONFIDENCE}"
)


@dataclass(frozen=True)
class Rule:
    """When a cell has seeds enough.

    Parameters
    ----------
    metric : str
    kind : {"within", "best"}
    amount : float
        The width asked for; for ``best``, the difference that does not matter, 0 if none.
    relative : bool
        Whether the amount is a share of the mean.
    sign : int
        1 if the largest is best, -1 if the smallest is.
    confidence : float
    """

    metric: str
    kind: str
    amount: float
    relative: bool
    sign: int = 1
    confidence: float = 0.95

    def looks(self, seeds: int) -> list[int]:
        """Return the numbers of seeds at which the cells are looked at.

        Examples
        --------
        >>> parse_rule("updates within 1%").looks(100)
        [32, 64, 100]
        """
        looks = [min(FIRST_LOOK, seeds)]
        while looks[-1] < seeds:
            looks.append(min(2 * looks[-1], seeds))
        return looks

    def enough(self, values: np.ndarray, open_cells: np.ndarray, looks: int) -> np.ndarray:
        """Tell which open cells need no more seeds.

        A cell without any value is never told apart from others, and never narrow.

        Parameters
        ----------
        values : ndarray of float64, (cells, seeds)
            NaN where there is no value.
        open_cells : ndarray of bool
            Cells that have had every seed so far.
        looks : int
            How many looks there may be, K.

        Returns
        -------
        ndarray of bool
        """
        values = with_nan(self.metric, values)
        if self.kind == "within":
            return open_cells & self._narrow(values, looks)
        return self._resolved(values, open_cells, looks)

    def _narrow(self, values: np.ndarray, looks: int) -> np.ndarray:
        alpha = (1 - self.confidence) / looks
        mean, half = student(values, 1 - alpha / 2)
        target = self.amount * np.abs(mean) if self.relative else self.amount
        return np.where(np.isnan(half), False, half <= target)

    def _resolved(self, values: np.ndarray, open_cells: np.ndarray, looks: int) -> np.ndarray:
        means = np.where(open_cells, self.sign * student(values, 0.5)[0], -np.inf)
        means = np.where(np.isnan(means), -np.inf, means)
        leader = int(np.argmax(means))
        cells = max(1, int(open_cells.size) - 1)
        alpha = (1 - self.confidence) / (looks * cells)
        difference, half = student(self.sign * (values[leader] - values), 1 - alpha)
        tied = np.nan_to_num(np.abs(values[leader] - values)).max(axis=1) == 0  # run by run the same
        settled = (difference - half > 0) | tied
        if self.amount:
            limit = self.amount * abs(means[leader]) if self.relative else self.amount
            settled |= difference + half <= limit
        settled &= open_cells & ~np.isnan(difference)
        settled[leader] = False
        if not (open_cells & ~settled).sum() > 1:
            settled[leader] = True  # nobody is left to compare with
        return settled


def parse_rule(text: str) -> Rule:
    """Read a rule.

    Raises
    ------
    ConfigError
        If it is none, or names no metric.

    Examples
    --------
    >>> parse_rule("trained_tokens_per_second within 1%").amount
    0.01
    >>> parse_rule("difference to the best trained_tokens_per_second resolved at 99%").confidence
    0.99
    """
    found = (
        _WITHIN.fullmatch(text.strip()) or _BEST.fullmatch(text.strip()) if isinstance(text, str) else None
    )
    if found is None:
        raise ConfigError(
            "until",
            "must read 'METRIC within 1%', 'METRIC within 0.5' or 'best METRIC resolved'",
            text,
            "Write until = 'trained_tokens_per_second within 1%'.",
        )
    parts = found.groupdict()
    if parts["metric"] not in METRIC_BY_NAME:
        hint = nearest(parts["metric"], METRIC_BY_NAME)
        raise ConfigError("until", "must name a metric", parts["metric"], hint)
    amount = float(parts["amount"] or 0.0)
    confidence = float(parts["confidence"] or 95.0) / 100
    if not 0.5 <= confidence < 1 or (found.re is _WITHIN and amount <= 0):
        raise ConfigError("until", "must have a width above 0 and 50% to 100%", text, "Write within 1%.")
    return Rule(
        metric=parts["metric"],
        kind="within" if found.re is _WITHIN else "best",
        amount=amount / 100 if parts["percent"] else amount,
        relative=bool(parts["percent"]),
        sign=-1 if parts.get("which") == "lowest" else 1,
        confidence=confidence,
    )


def reported_metrics(spec: SweepSpec) -> tuple[Metric, ...]:
    """Return the metrics that a sweep reports: those of levels 2 and 3 only where a cell uses an option.

    A sweep in which a rule of the user's decides has them too; the user's metrics come last.
    """
    own = spec.custom.metrics if spec.custom else ()
    if spec.is_level_1 and not (spec.custom and spec.custom.decides):
        return (*METRICS, *own)
    return (*METRICS, *GENERAL_METRICS, *metrics_of_options(spec.options_in_use), *own)


def check_metric(rule: Rule, spec: SweepSpec) -> None:
    """Refuse a rule about a metric that the sweep does not report.

    Raises
    ------
    ConfigError
    """
    known = [metric.name for metric in reported_metrics(spec)]
    if rule.metric not in known:
        raise ConfigError(
            "until",
            "must name a metric that this sweep reports",
            rule.metric,
            nearest(rule.metric, known) or "Options of generation and rules report more.",
        )
