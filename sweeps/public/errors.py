"""The errors of Lagsweep and the findings they carry; both are made in :mod:`lagsweep.kernels.errors`."""

from __future__ import annotations

from .kernels.errors import CheckpointError, ConfigError, ContractError, Finding, LagsweepError, StoreError

__all__ = ["CheckpointError", "ConfigError", "ContractError", "Finding", "LagsweepError", "StoreError"]
