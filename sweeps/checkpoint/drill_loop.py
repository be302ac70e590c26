"""A small but whole asynchronous training loop, for breaking and resuming.

A softmax policy over a few actions is trained with REINFORCE and Adam on prompts with hidden best answers.
Everything that makes a resume hard is there: rollouts in flight with unequal times, a queue of finished
ones, weights published every few updates, a budget of outstanding rollouts, stale ones dropped, epochs of
shuffled prompts, and two generators that both keep half-used words (32-bit draws, ``random.gauss``).

It is plain NumPy and single-threaded: the same seed gives the same bits, so two runs can be compared whole.
It is not a model of speed; that is what the simulator is for.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from ...kernels.admission_rules import staleness_room
from ...kernels.errors import CheckpointError, ConfigError
from .checkpoint import Manifest, make_checkpoint, restore_rng
from .codec import encode
from .generators import encode_generator
from .manifest import whole_number
from .prompts import PromptCursor

FEATURES, ACTIONS = 6, 4
_LARGEST_DRAW = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """Sizes of the drill's loop: prompts, batch, slots, lag limit, publication cadence, prefetch.

    Attributes
    ----------
    samples : int
        Prompts in an epoch.
    epochs : int or None
        Epochs; none means without end.
    batch_rollouts : int
        Rollouts in a training batch.
    rollout_slots : int
        Rollouts that can be in flight at once.
    max_policy_lag : int
        Older rollouts are dropped; it also sets the budget of outstanding ones.
    sync_every_updates : int
        Updates between publications; at most `max_policy_lag` + 1, or the loop would starve.
    prefetch_prompts : int
        How far a data loader reads ahead of what was handed out (used by one broken resume).
    learning_rate : float
        Of Adam.
    """

    samples: int = 24
    epochs: int | None = None
    batch_rollouts: int = 4
    rollout_slots: int = 24
    max_policy_lag: int = 2
    sync_every_updates: int = 2
    prefetch_prompts: int = 5
    learning_rate: float = 0.05

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and a cadence at which every rollout is too old."""
        for name, value in asdict(self).items():
            least = 0 if name == "max_policy_lag" else 1
            if name not in ("learning_rate", "epochs") and whole_number(name, value) < least:
                raise ConfigError(name, f"must be at least {least}", value, "Give a count.")
        if self.sync_every_updates > self.max_policy_lag + 1:
            raise ConfigError(
                "sync_every_updates",
                f"must be at most max_policy_lag + 1 = {self.max_policy_lag + 1}",
                self.sync_every_updates,
                "Publish more often, or allow more lag.",
            )

    @property
    def outstanding_limit(self) -> int:
        """Most rollouts that may be in flight or queued: (max_policy_lag + 1) batches."""
        return (self.max_policy_lag + 1) * self.batch_rollouts


@dataclass(frozen=True)
class UpdateRecord:
    """What one update did; two runs are the same when their records are."""

    update: int
    trained: tuple[int, ...]
    dropped: tuple[int, ...]
    mean_reward: float
    max_lag: int
    largest_outstanding: int
    draws: tuple[int, ...] = field(repr=False)
    weights_digest: str = ""


class TrainingLoop:
    """The loop: admit rollouts, let them finish, drop stale ones, train, publish.

    Parameters
    ----------
    seed : int
        Seeds the task, the order of prompts and both generators.
    settings : DrillSettings, optional
        Its sizes.
    """

    def __init__(self, seed: int, settings: DrillSettings | None = None) -> None:
        self.seed = seed
        self.settings = settings or DrillSettings()
        # The task is data, not training state: it is made from the seed again at every start.
        task = np.random.default_rng([seed, 0])
        self.features = task.standard_normal((self.settings.samples, FEATURES))
        self.best_actions = np.argmax(self.features @ task.standard_normal((FEATURES, ACTIONS)), axis=1)
        self.weights = np.zeros((FEATURES, ACTIONS))
        self.first_moment = np.zeros_like(self.weights)
        self.second_moment = np.zeros_like(self.weights)
        self.optimizer_step = 0
        self.current_version = 0
        self.published_version = 0
        self.published_weights = self.weights.copy()
        self.prompts = PromptCursor(self.settings.samples, epochs=self.settings.epochs, shuffle_seed=seed)
        self.queue: list[dict[str, Any]] = []
        self.in_flight: list[dict[str, Any]] = []
        self.accepted = 0
        self.rng = np.random.default_rng(seed)
        self.python_random = random.Random(seed)
        self.records: list[UpdateRecord] = []
        self._largest_outstanding = 0
        self._begin_record()

    def run(self, updates: int) -> TrainingLoop:
        """Do exactly so many updates.

        Parameters
        ----------
        updates : int
            How many.

        Returns
        -------
        TrainingLoop
            Itself.

        Raises
        ------
        CheckpointError
            If the prompts run out first: fewer updates than planned is never a quiet success.
        """
        for done in range(updates):
            if not self._fill_batch():
                raise CheckpointError(
                    "updates",
                    f"must all be done, but the prompts ran out with {len(self.queue)} rollouts queued",
                    f"{done} of {updates}",
                    "Check the data cursor of the checkpoint, or add epochs.",
                )
            self._update()
        return self

    def aspects(self) -> dict[str, Any]:
        """Everything that a resume must restore, by name, in a form that compares exactly."""
        return {
            "weights": encode(self.weights),
            "optimizer": encode([self.first_moment, self.second_moment, self.optimizer_step]),
            "versions": [self.current_version, self.published_version],
            "published weights": encode(self.published_weights),
            "NumPy stream": encode_generator(self.rng),
            "Python stream": encode_generator(self.python_random),
            "data cursor": self.prompts.as_state(),
            "queue": encode(self.queue),
            "in flight": encode(self.in_flight),
            "admission counter": self.accepted,
        }

    def checkpoint(self, previous: Manifest | None = None) -> Manifest:
        """Take the whole snapshot.

        Parameters
        ----------
        previous : Manifest, optional
            The checkpoint before.

        Returns
        -------
        Manifest
            With queue, rollouts in flight, both generators and the admission counter.
        """
        return make_checkpoint(
            optimizer_step=self.optimizer_step,
            current_version=self.current_version,
            published_version=self.published_version,
            dataset_cursor=self.prompts.cursor,
            rng=self.rng,
            python_random=self.python_random,
            components=self.components(),
            counters={"accepted_rollouts": self.accepted},
            queue=self.queue,
            in_flight=self.in_flight,
            state={
                "weights": self.weights,
                "published_weights": self.published_weights,
                "first_moment": self.first_moment,
                "second_moment": self.second_moment,
                "ledger": self.prompts.as_state(),
            },
            previous=previous,
        )

    def components(self) -> dict[str, Any]:
        """Sizes and seed: a resume under others would be another run."""
        sizes = {f"drill.{name}": value for name, value in asdict(self.settings).items()}
        sizes["drill.epochs"] = self.settings.epochs or "without end"
        return {**sizes, "drill.seed": str(self.seed)}

    @classmethod
    def from_checkpoint(
        cls, manifest: Manifest, seed: int, settings: DrillSettings | None = None
    ) -> TrainingLoop:
        """Make the loop again, every part of it, from a checkpoint.

        Parameters
        ----------
        manifest : Manifest
            From :meth:`checkpoint`, through a file or not.
        seed, settings
            As the run was started with.

        Returns
        -------
        TrainingLoop
            It goes on exactly as the saved one would have.
        """
        loop, state = cls(seed, settings), manifest.state
        for name in ("weights", "published_weights", "first_moment", "second_moment"):
            setattr(loop, name, state[name])
        loop.optimizer_step = manifest.optimizer_step
        loop.current_version = manifest.current_version
        loop.published_version = manifest.published_version
        loop.prompts = PromptCursor.from_state(state["ledger"])
        loop.queue, loop.in_flight = manifest.queue, manifest.in_flight
        loop.accepted = manifest.counters["accepted_rollouts"]
        loop.rng = cast(np.random.Generator, restore_rng(manifest, "numpy"))
        loop.python_random = cast(random.Random, restore_rng(manifest, "python"))
        loop._begin_record()
        return loop

    def _fill_batch(self) -> bool:
        """Go on until a batch is queued; False if the prompts ran out before."""
        while True:
            self._drop_stale()
            if len(self.queue) >= self.settings.batch_rollouts:
                return True
            self._admit()
            if not self.in_flight:
                return False
            self._tick()

    def _admit(self) -> None:
        settings = self.settings
        while len(self.in_flight) < settings.rollout_slots and not self.prompts.exhausted:
            # It only holds while the version and the count of accepted rollouts come from one snapshot.
            room = staleness_room(
                settings.max_policy_lag,
                self.published_version,
                settings.batch_rollouts,
                self.accepted,
                len(self.in_flight),
            )
            if room <= 0:
                break
            self.in_flight.append(self._start_rollout(self.prompts.issue()))
        self._largest_outstanding = max(self._largest_outstanding, len(self.queue) + len(self.in_flight))

    def _start_rollout(self, number: int) -> dict[str, Any]:
        """Sample an answer from the published weights; it lands some ticks later."""
        prompt = self.prompts.prompt_id(number)
        log_probabilities = _log_softmax(self.features[prompt] @ self.published_weights)
        # A 32-bit draw leaves half a word in the generator, gauss a second normal: both must be saved.
        draw = int(self.rng.integers(0, _LARGEST_DRAW, dtype=np.int32))
        self._draws.append(draw)
        cumulative = np.cumsum(np.exp(log_probabilities))
        action = min(int(np.searchsorted(cumulative, draw / _LARGEST_DRAW, side="right")), ACTIONS - 1)
        reward = float(action == self.best_actions[prompt]) + 0.1 * float(self.rng.standard_normal())
        return {
            "number": number,
            "prompt": prompt,
            "behaviour_version": self.published_version,
            "action": action,
            "behaviour_logprob": float(log_probabilities[action]),
            "reward": reward,
            "ticks_left": max(1, round(self.python_random.gauss(4.0, 2.0))),
        }

    def _tick(self) -> None:
        for rollout in self.in_flight:
            rollout["ticks_left"] -= 1
        finished = [rollout for rollout in self.in_flight if rollout["ticks_left"] == 0]
        self.in_flight = [rollout for rollout in self.in_flight if rollout["ticks_left"] > 0]
        self.queue += finished
        self.accepted += len(finished)

    def _drop_stale(self) -> None:
        limit = self.settings.max_policy_lag
        stale = [r for r in self.queue if self.current_version - r["behaviour_version"] > limit]
        self.queue = [r for r in self.queue if self.current_version - r["behaviour_version"] <= limit]
        self.accepted -= len(stale)
        for rollout in stale:
            self.prompts.settle(rollout["number"], "dropped")
            self._dropped.append(rollout["number"])

    def _update(self) -> None:
        size = self.settings.batch_rollouts
        batch, self.queue = self.queue[:size], self.queue[size:]
        lags = [self.current_version - rollout["behaviour_version"] for rollout in batch]
        for rollout in batch:
            self.prompts.settle(rollout["number"], "trained")
        self._optimize(batch)
        self.current_version += 1
        if self.current_version % self.settings.sync_every_updates == 0:
            self.published_version = self.current_version
            self.published_weights = self.weights.copy()
        self._admit()
        self.records.append(
            UpdateRecord(
                update=self.current_version,
                trained=tuple(rollout["number"] for rollout in batch),
                dropped=tuple(self._dropped),
                mean_reward=float(np.mean([rollout["reward"] for rollout in batch])),
                max_lag=max(lags),
                largest_outstanding=self._largest_outstanding,
                draws=tuple(self._draws),
                weights_digest=weights_digest(self.weights),
            )
        )
        self._begin_record()

    def _optimize(self, batch: list[dict[str, Any]]) -> None:
        """One Adam step on the importance-weighted REINFORCE gradient, weights truncated at 2."""
        inputs = self.features[[rollout["prompt"] for rollout in batch]]
        actions = np.array([rollout["action"] for rollout in batch])
        rewards = np.array([rollout["reward"] for rollout in batch])
        behaviour = np.array([rollout["behaviour_logprob"] for rollout in batch])
        rows = np.arange(len(batch))
        log_probabilities = _log_softmax(inputs @ self.weights)
        ratios = np.minimum(np.exp(log_probabilities[rows, actions] - behaviour), 2.0)
        towards = -np.exp(log_probabilities)
        towards[rows, actions] += 1.0
        advantages = ratios * (rewards - rewards.mean())
        gradient = inputs.T @ (towards * advantages[:, None]) / len(batch)
        self.optimizer_step += 1
        self.first_moment = 0.9 * self.first_moment + 0.1 * gradient
        self.second_moment = 0.99 * self.second_moment + 0.01 * gradient**2
        mean = self.first_moment / (1.0 - 0.9**self.optimizer_step)
        square = self.second_moment / (1.0 - 0.99**self.optimizer_step)
        self.weights = self.weights + self.settings.learning_rate * mean / (np.sqrt(square) + 1e-8)

    def _begin_record(self) -> None:
        self._draws: list[int] = []
        self._dropped: list[int] = []
        self._largest_outstanding = len(self.queue) + len(self.in_flight)


def weights_digest(weights: np.ndarray) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of the weights' bytes."""
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()[:12]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
