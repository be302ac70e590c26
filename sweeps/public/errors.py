"""The errors of Lagsweep, for ``except`` clauses; they are made in :mod:`lagsweep.kernels.errors`."""

from __future__ import annotations

from .kernels.errors import CheckpointError, ConfigError, ContractError, LagsweepError, StoreError

__all__ = ["CheckpointError", "ConfigError", "ContractError", "LagsweepError", "StoreError"]
