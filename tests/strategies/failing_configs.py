"""Hypothesis strategies of runs with failures, on top of those of every level, with engines or without."""

from __future__ import annotations

from hypothesis import strategies as st
from strategies import engine_configs, general_configs
from strategies.engine_configs import engine_settings

from lagsweep.sweeps.testing.trainer_settings import trainer_settings


@st.composite
def failing_settings(draw, *, engines=False):
    """Draw plain settings of one small run in which something fails, or checkpoints are written."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    settings = draw(engine_settings() if engines else trainer_settings())
    span = settings["duration_seconds"]
    fails = pick(True, True, True, False)
    saves = pick(True, True, True, False)
    if fails:
        settings["trainer_mtbf_seconds"] = pick(span / 3, span / 8, span / 20)
        settings["restart_seconds"] = pick(0.0, 0.25, 2.0, span / 20)
    if saves:
        settings["checkpoint_every_updates"] = pick(1, 1, 2, 3)
        settings["checkpoint_seconds"] = pick(0.0, 0.5, 1.25, span / 40)
    if fails and saves:
        settings["checkpoint_scope"] = pick("full", "full", "weights_only")
    if not (fails or saves) or pick(True, False):
        settings["worker_mtbf_seconds"] = pick(span / 2, span / 6, span / 20)
    return settings


def to_twin(settings):
    """Return the settings as the twin takes them."""
    return general_configs.to_twin(settings)


def to_config(settings):
    """Return the settings as a checked ``PipelineConfig``."""
    return (engine_configs if settings.get("engine") else general_configs).to_config(settings)
