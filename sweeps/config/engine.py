"""An inference engine as settings: what a step takes, what its cache and its batch hold, who routes to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...kernels.engine.records import COEFFICIENTS, NO_LIMIT, ROUTINGS, UNITS_BITS
from ...kernels.errors import ConfigError, Finding
from ..checks import RealNumber, WholeNumber, raise_config_error

Seconds = Annotated[RealNumber, Field(ge=0, le=4_000_000)]
Tokens = Annotated[WholeNumber, Field(ge=1, le=2**52)]
Routing = Literal["least_loaded", "round_robin", "group"]

UNITS_PER_SECOND = 1_000_000 * 2**UNITS_BITS
LARGEST_STEP = 2**62  # u


def units(seconds: float) -> int:
    """Turn seconds into units of an engine's clock, 2**-20 microseconds: ``floor(s * 1e6 * 2**20 + 0.5)``.

    Examples
    --------
    >>> units(1e-6), units(1e-13)
    (1048576, 0)
    """
    return int(np.floor(seconds * 1e6 * 2**UNITS_BITS + 0.5))


class Engine(BaseModel):
    """An inference engine that decodes in steps (frozen, keyword-only, every field checked).

    A step with n running rollouts whose contexts sum to S, of which x tokens are prefilled in it, takes
    ``step_seconds + n * step_seconds_per_rollout + S * step_seconds_per_context_token
    + x * prefill_seconds_per_token`` and gives each of them one token.

    Examples
    --------
    >>> engine = Engine(step_seconds=0.012, step_seconds_per_context_token=8e-8, kv_cache_tokens=400_000)
    >>> engine.count, engine.max_running, engine.routing
    (1, None, 'least_loaded')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[WholeNumber, Field(ge=1, le=2**20)] = Field(
        1, description="equal engines; one is one replica, whatever its tensor parallelism"
    )
    step_seconds: Seconds = Field(description="fixed part of a step")
    step_seconds_per_rollout: Seconds = Field(0.0, description="for each rollout in a step")
    step_seconds_per_context_token: Seconds = Field(
        0.0, description="for each token of context read in a step"
    )
    prefill_seconds_per_token: Seconds = Field(0.0, description="for each token prefilled")
    kv_cache_tokens: Tokens | None = Field(
        None, description="tokens of context that one engine holds; none: no limit"
    )
    max_running: Tokens | None = Field(
        None, description="rollouts that one engine decodes at once; none: no limit"
    )
    routing: Routing = Field(
        "least_loaded", description="which engine takes a rollout: the least loaded, in turn, or its group's"
    )

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise_config_error(error, type(self).model_fields, prefix="engine.")
        if units(self.step_seconds) + units(self.step_seconds_per_rollout) < 1:
            raise ConfigError(
                "engine.step_seconds",
                "must take time: with step_seconds_per_rollout at least 1e-12 s",
                self.step_seconds,
                "Give the fixed part of a step, as 0.012.",
            )


def coefficients_of(engine: Engine) -> np.ndarray:
    """Return what the kernels read of an engine: COEFFICIENTS[1]."""
    found = np.zeros(1, COEFFICIENTS)
    found["step"] = units(engine.step_seconds)
    found["rollout"] = units(engine.step_seconds_per_rollout)
    found["context"] = units(engine.step_seconds_per_context_token)
    found["prefill"] = units(engine.prefill_seconds_per_token)
    found["cache_tokens"] = NO_LIMIT if engine.kv_cache_tokens is None else engine.kv_cache_tokens
    found["max_running"] = NO_LIMIT if engine.max_running is None else engine.max_running
    found["routing"] = ROUTINGS.index(engine.routing)
    return found


def step_too_long(engine: Engine, rollouts: int, longest_context: int) -> Finding | None:
    """Find that a step with so many rollouts in flight, each so long, could leave the clock's range."""
    running = rollouts if engine.max_running is None else min(rollouts, engine.max_running)
    tokens = running * longest_context
    if engine.kv_cache_tokens is not None:
        tokens = min(tokens, max(engine.kv_cache_tokens, longest_context))
    each = units(engine.step_seconds_per_context_token) + units(engine.prefill_seconds_per_token)
    largest = units(engine.step_seconds) + units(engine.step_seconds_per_rollout) * running + each * tokens
    if largest < LARGEST_STEP:
        return None
    return Finding(
        "engine.step_seconds",
        f"a step could last {largest / UNITS_PER_SECOND:.3g} s, "
        f"and must stay below {LARGEST_STEP / UNITS_PER_SECOND:.3g} s",
        engine.step_seconds,
        "Give seconds, not milliseconds, or limit max_running.",
    )
