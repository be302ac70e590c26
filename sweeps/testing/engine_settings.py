"""Plain settings of pipelines with inference engines, on top of those of :mod:`.trainer_settings`.

Settings are plain; ``engine`` is a mapping of the fields of ``Engine``. Numbers are coarse so that steps end
on ticks, caches that just hold one rollout are common, and so are engines that decode one at a time.
"""

from __future__ import annotations

from hypothesis import strategies as st

from ..config.config import PipelineConfig
from ..config.engine import Engine
from . import general_settings as general
from .core_settings import Pick, Plain, picker
from .general_settings import longest_of
from .trainer_settings import trainer_settings

REPLACED = ("decode_tokens_per_second", "decode_slowdown_per_rollout", "reprefill_tokens_per_second")
MOST_STEPS = 1500  # of a run, about: the twin takes each by itself


@st.composite
def engine_settings(draw: st.DrawFn) -> Plain:
    """Draw plain settings of one small run with engines."""
    pick = picker(draw)
    settings: Plain = draw(trainer_settings())
    settings["engine"] = engine_part(pick, settings)
    if settings["mode"] == "sequential":
        settings.pop("resume_seconds", None)
    return {name: value for name, value in settings.items() if name not in REPLACED}


def engine_part(pick: Pick, settings: Plain) -> Plain:
    """Draw an engine whose steps fit the run's other times."""
    count = pick(1, 1, 2, 3)
    # A token takes what it did, on a round grid; at most so many steps in the run.
    least = settings["duration_seconds"] * count / MOST_STEPS
    token = max(1 / settings["decode_tokens_per_second"], least, 1e-6)
    token = pick(token, round(token, 6) or 1e-6, round(token, 2) or token)
    longest = longest_of(settings["response_length"]) + settings.get("prompt_tokens", 0)
    cache = pick(None, longest, longest, longest + 1, round(1.5 * longest), 2 * longest, 3 * longest)
    return {
        "count": count,
        "step_seconds": pick(token, token, token / 2, token / 3),
        "step_seconds_per_rollout": pick(0.0, token / 4, 0.1 * token, 0.037 * token),
        "step_seconds_per_context_token": pick(0.0, token / 256, token / 1000, 1e-9),
        "prefill_seconds_per_token": pick(0.0, token / 16, token / 100, 1e-9),
        "kv_cache_tokens": cache,
        "max_running": pick(None, None, None, 1, 2, 3),
        "routing": pick("least_loaded", "least_loaded", "round_robin", "group"),
    }


def to_config(settings: Plain) -> PipelineConfig:
    """Return the settings as a checked configuration."""
    return general.to_config({**settings, "engine": Engine(**settings["engine"])})
