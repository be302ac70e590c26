"""A calibrated run: its configuration, what was fitted, how it did on held steps, what is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars

from ...kernels.errors import Finding
from ..config.config import PipelineConfig
from .axes_around import axes_around
from .backtest import HeldRow, missed, whole_log
from .configuration import Values
from .estimates import Estimates
from .fits import Fit
from .gpus import Gpus
from .matching import Match
from .ranges import PREDICTED, End, Span
from .setup import Setup

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, repr=False)
class Calibration:
    """A configuration fitted to a run's log.

    Attributes
    ----------
    source : str
        Where the log is from.
    config : PipelineConfig
        What ``lagsweep run`` takes.
    setup : Setup
    estimates : Estimates
    values : Values
    ends : tuple of End
        The values with each fitted number at the ends of its interval.
    match : Match
        How the speed of decoding was found.
    fits : tuple of Fit
    tests : tuple of HeldRow
        The held steps, predicted.
    predictions : mapping of str to Span
        What the run does as it is, with the range that the data leave.
    steps : polars.DataFrame
        The steps that were used, fitted and held.
    fitted : int
        How many of them were fitted on: the first ones.
    read : tuple
        What the reader of the log found: kind, column or rows, what was done.
    columns : mapping of str to str
        What each column was read from.
    seed : int
    gpus : Gpus
        Of the two sides of the run.
    assumed : tuple of Finding
        Every number that the configuration holds and the log does not.
    """

    source: str
    config: PipelineConfig
    setup: Setup
    estimates: Estimates
    values: Values
    ends: tuple[End, ...]
    match: Match
    fits: tuple[Fit, ...]
    tests: tuple[HeldRow, ...]
    predictions: Mapping[str, Span]
    steps: polars.DataFrame
    fitted: int
    read: tuple[Any, ...]
    columns: Mapping[str, str]
    seed: int
    gpus: Gpus = field(default_factory=Gpus)
    assumed: tuple[Finding, ...] = ()

    @property
    def misses(self) -> tuple[HeldRow, ...]:
        """The held quantities that lie outside what was predicted of them, by more than a little."""
        return missed(self.tests, self.estimates, self.setup)

    @property
    def fits_log(self) -> bool | None:
        """Whether the model meets the held steps, and as it is the log's; None where none were held."""
        if not self.tests:
            return None
        return not self.misses and not missed([self.as_logged], self.estimates, self.setup)

    @property
    def as_logged(self) -> HeldRow:
        """The run as it is, its step held against all steps of the log that have its lengths."""
        told = self.predictions["step_seconds"]
        return whole_log(self.setup, self.estimates, self.values, told, self.steps, seed=self.seed)

    @property
    def held(self) -> int:
        """Steps that were predicted and not fitted on."""
        return len(self.steps) - self.fitted

    def fits_frame(self) -> polars.DataFrame:
        """Return what was fitted: a row a number, with its interval, its rows and how it was found."""
        return polars.DataFrame([one.as_dict() for one in self.fits])

    def backtest_frame(self) -> polars.DataFrame:
        """Return the held steps: a row a quantity, measured and predicted."""
        return polars.DataFrame([one.as_dict() for one in self.tests])

    def predictions_frame(self) -> polars.DataFrame:
        """Return what the run does as it is, with the range that the data leave and whether they fix it."""
        rows = [
            {
                "name": PREDICTED[name][0],
                "unit": PREDICTED[name][1],
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "identified": one.identified,
                "by": one.by,
            }
            for name, one in self.predictions.items()
        ]
        return polars.DataFrame(rows)

    def __repr__(self) -> str:
        from .text import calibration_text

        return calibration_text(self)

    def __str__(self) -> str:
        return repr(self)

    def to_toml(self, name: str = "run.toml") -> str:
        """Return the configuration as a file that ``lagsweep run`` takes, with where it is from.

        Parameters
        ----------
        name : str
            What the file will be called.
        """
        from .calibration_toml import calibration_toml

        return calibration_toml(self, name)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, as ``lagsweep calibrate --json`` prints it."""
        from .facts import calibration_facts

        return calibration_facts(self)

    def sweep(
        self,
        axes: Mapping[str, Any],
        *,
        seeds: int | Iterable[int] = 3,
        store: str | Path | None = None,
        threads: int | None = None,
    ) -> xarray.Dataset:
        """Sweep around the run as it is.

        Parameters
        ----------
        axes : mapping
            As for :func:`run_sweep`; ``max_lag`` stands for the preset's own knob.
        seeds : int or sequence of int
        store : path, optional
            A folder that keeps it.
        threads : int, optional

        Returns
        -------
        xarray.Dataset
        """
        from ..sweep.run import run_sweep

        groups = [axis.group(self.config) for axis in axes_around(self.config, self.setup, self.gpus, axes)]
        return run_sweep(self.config, axes=groups, seeds=seeds, store=store, threads=threads)
