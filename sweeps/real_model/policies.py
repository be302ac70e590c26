"""A policy that samples with log-probabilities, and one that trains on what was sampled.

The sampling side runs in bfloat16, as inference engines do, the trainer in float32: already at lag 0 their
log-probabilities differ a little. All rollouts of a group have one prompt, so no row is padded at the left
and positions need no care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.masks.completion import completion_token_mask
from ...kernels.staleness.ess_levels import rollout_ess
from ...kernels.staleness.importance_weights import token_importance_weights
from .models import (
    ModelFacts,
    build,
    digest_of,
    load_weights,
    read_facts,
    read_letters,
    reward_of,
    save_weights,
)

SAMPLED_IN, TRAINED_IN = "bfloat16", "float32"
VERIFIER = "letter-e-1"
MOST_WEIGHT = 2.0  # of a token, as truncated importance sampling has it
Records = Sequence[Mapping[str, Any]]


def batch_of(records: Records, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put the records of a group into rows.

    Parameters
    ----------
    records : sequence of mapping
    pad : int
        Fills what a row lacks; masks go by lengths, never by this id.

    Returns
    -------
    tokens : ndarray of int64, shape (rollouts, longest)
    logprobs : ndarray of float64, of the same shape
        Of the behaviour policy; 0 where nothing was sampled.
    lengths : ndarray of int64, shape (rollouts,)

    Examples
    --------
    >>> rows = [{"response_tokens": [5, 2], "behavior_logprobs": [-1.0, -0.5]},
    ...         {"response_tokens": [2], "behavior_logprobs": [-2.0]}]
    >>> batch_of(rows, pad=2)[0].tolist(), batch_of(rows, pad=2)[2].tolist()
    ([[5, 2], [2, 2]], [2, 1])
    """
    lengths = np.array([len(record["response_tokens"]) for record in records], dtype=np.int64)
    tokens = np.full((len(records), int(lengths.max())), pad, dtype=np.int64)
    logprobs = np.zeros(tokens.shape)
    for row, record in enumerate(records):
        tokens[row, : lengths[row]] = record["response_tokens"]
        logprobs[row, : lengths[row]] = record["behavior_logprobs"]
    return tokens, logprobs, lengths


def advantages_of(rewards: Sequence[float]) -> np.ndarray:
    """Return rewards less the group's mean, over its standard deviation (GRPO); 0 where all are equal.

    Examples
    --------
    >>> advantages_of([0.0, 1.0]).round(3).tolist(), advantages_of([0.5, 0.5]).tolist()
    ([-1.0, 1.0], [0.0, 0.0])
    """
    values = np.asarray(rewards, dtype=np.float64)
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 else np.zeros(len(values))


class ModelSampler:
    """The generator's side: a model in bfloat16 and a generator of random numbers of its own.

    Parameters
    ----------
    folder : Path
        As :func:`~.models.prepare` wrote it.
    settings : mapping
        ``group_size``, ``max_new_tokens``, ``seed``.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import torch

        self.facts: ModelFacts = read_facts(folder)
        self.model = build(folder, SAMPLED_IN)
        self.letters = read_letters(folder)
        self.count, self.most = int(settings["group_size"]), int(settings["max_new_tokens"])
        self.random = torch.Generator().manual_seed(int(settings["seed"]))

    def load(self, path: Path) -> None:
        """Take weights from a file."""
        load_weights(self.model, path)

    def follow(self, learner: ModelLearner) -> None:
        """Take the weights of a learner in the same process."""
        import torch

        with torch.no_grad():
            for own, come in zip(self.model.parameters(), learner.model.parameters()):
                own.copy_(come)

    def sample(self, number: int, version: int) -> list[dict[str, Any]]:
        """Sample the group of a number: its prompt is the one that is next in the list."""
        place = number % len(self.facts.prompts)
        prompt = self.facts.prompts[place]
        rows = self._sampled(prompt)
        records = []
        for member, (tokens, logprobs) in enumerate(rows):
            records.append(
                {
                    "sample_id": f"g{number:05}-{member}",
                    "prompt_id": f"question-{place}",
                    "policy_version": version,
                    "prompt_tokens": prompt,
                    "response_tokens": tokens,
                    "behavior_logprobs": logprobs,
                    "decoding": {"temperature": 1.0, "top_p": 1.0},
                    "reward": reward_of(self.letters, tokens),
                    "stop_reason": "eos" if tokens[-1] in self.facts.eos else "length",
                    "verifier_version": VERIFIER,
                }
            )
        return records

    def _sampled(self, prompt: Sequence[int]) -> list[tuple[list[int], list[float]]]:
        import torch

        ids = torch.tensor([prompt]).expand(self.count, -1)
        ends, cache = torch.tensor(self.facts.eos), None
        tokens, told = [], []
        with torch.inference_mode():
            done = torch.zeros(self.count, dtype=torch.bool)
            for _ in range(self.most):
                out = self.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
                cache = out.cache
                scores = out.logits[:, -1].float().log_softmax(-1)
                chosen = torch.multinomial(scores.exp(), 1, generator=self.random)
                tokens.append(chosen[:, 0])
                told.append(scores.gather(-1, chosen)[:, 0])
                done |= torch.isin(chosen[:, 0], ends)
                if bool(done.all()):
                    break
                ids = chosen  # rows that have ended go on unseen: the batch is as fast as its longest row
        rows, scores = torch.stack(tokens, 1).numpy(), torch.stack(told, 1).double().numpy()
        lengths = completion_token_mask(rows, self.facts.eos).sum(axis=1)
        # A probability may round to a little above 1 in float32.
        return [
            (row[:length].tolist(), np.minimum(score[:length], 0.0).tolist())
            for row, score, length in zip(rows, scores, lengths)
        ]


class ModelLearner:
    """The trainer's side: a model in float32 and AdamW.

    Parameters
    ----------
    folder : Path
        As :func:`~.models.prepare` wrote it.
    settings : mapping
        ``learning_rate``.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import torch

        self.facts: ModelFacts = read_facts(folder)
        self.model = build(folder, TRAINED_IN)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=float(settings["learning_rate"]), weight_decay=0.0, fused=True
        )
        self.version = 0

    def scores(self, records: Records) -> np.ndarray:
        """Return log-probabilities of a group's tokens, shape (rollouts, longest), without gradient."""
        import torch

        tokens, _, _ = batch_of(records, self.facts.pad)
        with torch.no_grad():
            return self._scores(records[0]["prompt_tokens"], tokens).double().numpy()

    def _scores(self, prompt: Sequence[int], tokens: np.ndarray) -> Any:
        """Score responses behind a prompt: the logits one place before each token tell its probability."""
        import torch

        rows, width = tokens.shape
        told = torch.from_numpy(tokens)
        ids = torch.cat([torch.tensor([prompt]).expand(rows, -1), told], dim=1)
        logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=width + 1).logits
        return logits[:, :-1].log_softmax(-1).gather(-1, told[..., None])[..., 0]

    def train(self, records: Records) -> dict[str, float]:
        """Take one optimizer step: policy gradient with truncated token weights (TIS).

        Parameters
        ----------
        records : sequence of mapping
            One group.

        Returns
        -------
        dict
            ``loss``, ``reward`` (its mean), ``token_ess`` (normalized, of the weights before truncation).
        """
        import torch

        tokens, behaviour, lengths = batch_of(records, self.facts.pad)
        active = completion_token_mask(tokens, self.facts.eos, lengths=lengths)
        scores = self._scores(records[0]["prompt_tokens"], tokens)
        log_ratio = np.where(active, scores.detach().double().numpy() - behaviour, 0.0)
        weights = token_importance_weights(log_ratio, mode="truncate", upper=MOST_WEIGHT, keep=active)
        advantages = advantages_of([record["reward"] for record in records])
        factor = torch.from_numpy(weights * advantages[:, None] / active.sum()).float()
        loss = -(factor * scores).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.version += 1
        ess = rollout_ess(log_ratio, level="token", mask=active)
        return {
            "loss": float(loss.detach()),
            "reward": float(np.mean([record["reward"] for record in records])),
            "token_ess": float(ess.normalized_ess),
        }

    def save(self, path: Path) -> None:
        """Write the weights as samplers have them."""
        save_weights(self.model, path, SAMPLED_IN)

    def digest(self) -> str:
        """Return the SHA-256 of the weights."""
        return digest_of(self.model)
