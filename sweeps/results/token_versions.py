"""ESS by token versions: what a rollout earns that goes on under newer weights.

The ESS that runs report counts every token with the version that its rollout *started* with. Under ``pause``
and ``abort`` later tokens are sampled by newer weights, so that ESS is too low: a lower bound. Where a
rollout's log weight is a sum over tokens that move on their own, a token of lag l adds a variance in
proportion to l, and the rollout's is ``drift**2`` times its mean token lag, which is at least the lag of its
last token. By Jensen's inequality the ESS of all rollouts is at most the one that they would have if each had
the mean of these last lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ..presets.systems import SYSTEM
from ..spec.carried import spec_of
from .cells import DONE, cell_values
from .drift_words import drift_words_of

if TYPE_CHECKING:
    import xarray

    from ..spec.spec import SweepSpec

_IN_FLIGHT = ("pause", "abort")
LOW, HIGH = "ess_by_start_version", "ess_by_end_version"


def token_version_ess(ds: xarray.Dataset) -> xarray.Dataset:
    """Bound the expected normalized ESS of rollouts whose tokens were sampled under several versions.

    Parameters
    ----------
    ds : xarray.Dataset
        A sweep with options of generation or rules, which reports ``mean_end_lag``; without
        ``drift_length_exponent``.

    Returns
    -------
    xarray.Dataset
        Over the cells and seeds: ``ess_by_start_version``, the run's ``mean_expected_normalized_ess``, at
        most the true value; ``ess_by_end_version = exp(-drift_per_version**2 * mean_end_lag)``, at least the
        value of all trained rollouts together (never below the first, and equal to it where no rollout goes
        on under newer weights); and ``effective_tokens_per_second_low`` and ``_high``, the trained tokens
        per second times each. NaN where no run was done or nothing was trained.

    Raises
    ------
    ConfigError
        If the sweep does not report ``mean_end_lag``, or a cell has a ``drift_length_exponent`` or a measured
        drift.

    Examples
    --------
    >>> import lagsweep as ls
    >>> base = ls.PipelineConfig(duration_seconds=600, sync_seconds=5, max_policy_lag=8)
    >>> ds = ls.run_sweep(base, {"publication": ["drain", "pause"]}, seeds=4, progress=False)
    >>> found = ls.token_version_ess(ds).mean("seed")
    >>> (found.ess_by_end_version > found.ess_by_start_version).values.tolist()
    [False, True]
    """
    import xarray

    cell_values(ds, "mean_end_lag")  # says what is missing, if it is
    spec = spec_of(ds)
    if spec.base.drift is not None or "drift" in spec.design.fields.values():
        rule = "must be none in every cell: a measured drift has the lags of whole rollouts"
        raise ConfigError("drift", rule, drift_words_of(spec), "Give drift_per_version.")
    exponents = _values_of(spec, "drift_length_exponent")
    if any(exponents):
        rule = "must be 0 in every cell: the bound is for a drift that does not grow with length"
        raise ConfigError("drift_length_exponent", rule, exponents, "Leave it out.")
    name = next((name for name, field in spec.design.fields.items() if field == "drift_per_version"), None)
    drift = spec.base.drift_per_version if name is None else ds[name].astype(np.float64)
    done = ds["status"] == DONE
    low = ds["mean_expected_normalized_ess"].where(done)
    last: xarray.DataArray = xarray.apply_ufunc(np.exp, -(drift**2) * ds["mean_end_lag"])
    # Level 1 reports no lag of the last token: there every token has the version of the start.
    high = last.where(_goes_on(ds, spec) & (last > low), low)
    tokens = ds["trained_tokens_per_second"].where(done)
    found = {
        LOW: (low, "1", "expected normalized ESS, every token with its rollout's first version"),
        HIGH: (high, "1", "expected normalized ESS, every token with its rollout's last version, at most"),
        "effective_tokens_per_second_low": (tokens * low, "tokens/s", "trained tokens/s times lower ESS"),
        "effective_tokens_per_second_high": (tokens * high, "tokens/s", "trained tokens/s times higher ESS"),
    }
    dims = ds["status"].dims
    return xarray.Dataset(
        {
            name: values.transpose(*dims).assign_attrs(units=units, long_name=words)
            for name, (values, units, words) in found.items()
        }
    )


def _goes_on(ds: xarray.Dataset, spec: SweepSpec) -> Any:
    """Tell in which cells a rollout may go on under newer weights; true where a system decides it."""
    column = next((name for name, field in spec.design.fields.items() if field == "publication"), None)
    if column is not None:
        return ds[column].isin(_IN_FLIGHT)
    decided = spec.base.preset is not None or SYSTEM in spec.design.fields.values()
    return decided or spec.base.publication in _IN_FLIGHT


def _values_of(spec: SweepSpec, field: str) -> list[float]:
    column = next((name for name, swept in spec.design.fields.items() if swept == field), None)
    if column is not None:
        return [float(value) for value in spec.design.columns[column][1]]
    return [float(getattr(spec.base, field))]
