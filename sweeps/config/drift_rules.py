"""Rules of a measured drift: what it stands in the place of, and that it covers every lag that may occur.

A law of drift knows the lags that were measured. A configuration whose rules let larger ones be trained is
refused before it runs, unless the law says what holds beyond (``beyond = "last"``): a run that met such a lag
after hours could only be thrown away, and whether it meets one would hang on its seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.errors import Finding
from ..laws.drift import DriftLaw

if TYPE_CHECKING:
    from .config import PipelineConfig


def largest_lag(config: PipelineConfig) -> int | None:
    """Return the largest lag in versions that the rules let be trained; None where they bound it by nothing.

    In `sequential` all rollouts of a batch begin under the last published version, so the lag stays below the
    cadence. Elsewhere work older than ``max_policy_lag`` is dropped until it is taken, and a batch of U
    updates that waits behind p others is trained up to ``U * p + U - 1`` versions later. Where stale work is
    never dropped, a preset may know a bound that can be proved of its rules. A run that ends with an update
    has no lag above the versions before it.

    Examples
    --------
    >>> from lagsweep import PipelineConfig
    >>> largest_lag(PipelineConfig(max_policy_lag=4)), largest_lag(PipelineConfig(mode="sequential"))
    (4, 0)
    >>> largest_lag(PipelineConfig(stale_check="never")) is None
    True
    """
    updates = config.updates_per_batch
    bounds = [config.lag_bound_of_preset]
    if config.mode == "sequential":
        bounds.append(config.sync_every_updates - 1)
    if config.stale_check != "never":
        bounds.append(config.max_policy_lag + updates * config.prefetch_batches + updates - 1)
    if config.stop_after_updates is not None:
        bounds.append(config.stop_after_updates + updates - 2)
    return min((bound for bound in bounds if bound is not None), default=None)


def drift_findings(config: PipelineConfig, law: DriftLaw) -> list[Finding]:
    """List what a measured drift contradicts."""
    found: list[Finding] = []
    if config.drift_length_exponent != 0:
        rule = "must be 0 beside drift: the records hold responses of every length"
        found.append(
            Finding("drift_length_exponent", rule, config.drift_length_exponent, "Leave out one of the two.")
        )
    return [*found, *_beyond_records(law, largest_lag(config), config)]


def _beyond_records(law: DriftLaw, bound: int | None, config: PipelineConfig) -> list[Finding]:
    """Find that a lag may occur which no record has, where the law does not say what holds of it."""
    known = law.largest_lag
    if law.beyond == "last" or (bound is not None and bound <= known):
        return []
    last = "write beyond = 'last' in drift: the law of the last lag then holds beyond it"
    if bound is None:
        rule = f"must know every lag that may be trained: no rule bounds it, and it knows those up to {known}"
        return [Finding("drift", rule, law.name, f"{last[0].upper()}{last[1:]}, and every table says so.")]
    limited = config.stale_check != "never" and config.preset is None
    lower = f"Lower max_policy_lag by {bound - known}" if limited else "Lower the limit of the lag"
    rule = f"must know every lag that may be trained, up to {bound}, and is measured up to {known}"
    return [Finding("drift", rule, law.name, f"{lower}, or {last}.")]
