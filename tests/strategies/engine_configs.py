"""Plain settings of pipelines with engines for the twin."""

from __future__ import annotations

from strategies import general_configs

from lagsweep.sweeps.testing.engine_settings import engine_settings, to_config

__all__ = ["engine_settings", "to_config", "to_twin"]


def to_twin(settings):
    """Return the settings as the twin takes them."""
    return general_configs.to_twin(settings)
