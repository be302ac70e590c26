"""Real models, from where they come to a folder that both processes load in a second.

torch and transformers are loaded on first use only. Everything runs on one thread of the CPU: sums of floats
depend on how many threads share them, so results are equal bit for bit for a fixed number only.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError
from .needs import smollm2_file
from .tiny_qwen3 import tiny_qwen3
from .workloads import QUESTIONS, SMOLLM2, TINY_QWEN3, ModelChoice

THREADS = 1
LETTERS = "letters.bin"


@dataclass(frozen=True)
class ModelFacts:
    """What sampling and checking need to know of a model.

    Attributes
    ----------
    name, revision : str
        The revision of a hub's model is its commit, of a file its SHA-256, of a made model its seed.
    parameters, vocabulary : int
    eos, pad : list of int, int
        Every id that ends a response, and the id that fills rows.
    prompts : list of list of int
        The questions as tokens, chat template included.
    template_sha256 : str
        Of the chat template; empty without one.
    """

    name: str
    revision: str
    parameters: int
    vocabulary: int
    eos: list[int]
    pad: int
    prompts: list[list[int]]
    template_sha256: str


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, and put back what was set before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(choice: ModelChoice, folder: Path, seed: int) -> ModelFacts:
    """Get a model and write it into a folder: weights in float32, shape, prompts, letters of each token.

    Parameters
    ----------
    choice : ModelChoice
    folder : Path
        Exists and is empty.
    seed : int
        Of a model that is made here.

    Returns
    -------
    ModelFacts

    Raises
    ------
    ConfigError
        If a hub's model can neither be found in its cache nor be fetched.
    """
    from safetensors.torch import save_file

    model, tokenizer, revision = _loaded(choice, seed)
    prompts = [_prompt(tokenizer, question) for question in QUESTIONS]
    ends = model.generation_config.eos_token_id
    eos = sorted({*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None})
    pad = tokenizer.pad_token_id
    template = getattr(tokenizer, "chat_template", None) or ""
    facts = ModelFacts(
        choice.name,
        revision,
        sum(one.numel() for one in model.parameters()),
        int(model.config.vocab_size),
        [int(one) for one in eos],
        int(eos[0] if pad is None else pad),
        prompts,
        hashlib.sha256(template.encode()).hexdigest() if template else "",
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are float32 now
    model.config.to_json_file(folder / "config.json", use_diff=False)
    save_file(
        {name: one.detach().clone() for name, one in model.named_parameters()}, folder / "weights.safetensors"
    )
    (folder / LETTERS).write_bytes(_letters(tokenizer, facts.vocabulary).tobytes())
    (folder / "facts.json").write_text(json.dumps(facts.__dict__), "utf-8")
    return facts


def read_facts(folder: Path) -> ModelFacts:
    """Read what :func:`prepare` wrote."""
    return ModelFacts(**json.loads((folder / "facts.json").read_text("utf-8")))


def read_letters(folder: Path) -> np.ndarray:
    """Return for each token how many letters it has, and how many are an e: int64, shape (vocabulary, 2)."""
    return np.frombuffer((folder / LETTERS).read_bytes(), dtype=np.int64).reshape(-1, 2)


def build(folder: Path, dtype: str) -> Any:
    """Build the model of a folder.

    Parameters
    ----------
    folder : Path
        As :func:`prepare` wrote it.
    dtype : {"float32", "bfloat16"}

    Returns
    -------
    torch.nn.Module
        In evaluation mode: nothing is dropped, so scores are those of sampling.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    kind = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    config = AutoConfig.for_model(kind).from_json_file(folder / "config.json")
    with no_init_weights():  # every one is read from the file
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.tie_weights()  # what the initialisation would have done
    load_weights(model, folder / "weights.safetensors")
    return model.eval()


def load_weights(model: Any, path: Path) -> None:
    """Copy the weights of a file into a model, in the model's own type."""
    import torch
    from safetensors.torch import load_file

    weights = load_file(path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def save_weights(model: Any, path: Path, dtype: str) -> None:
    """Write a model's weights, in a type."""
    import torch
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    save_file({name: one.detach().to(kind) for name, one in model.named_parameters()}, path)


def digest_of(model: Any) -> str:
    """Return the SHA-256 of a model's weights, bit for bit."""
    digest = hashlib.sha256()
    for _, one in sorted(model.named_parameters()):
        digest.update(np.ascontiguousarray(one.detach().numpy()).data)
    return digest.hexdigest()


def _loaded(choice: ModelChoice, seed: int) -> tuple[Any, Any, str]:
    """Return a model in float32, its tokenizer and what tells it from others."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    if choice.name == TINY_QWEN3:
        return *tiny_qwen3(seed), f"seed {seed}"
    logging.disable_progress_bar()
    if choice.name == SMOLLM2:
        path = smollm2_file()
        assert path is not None
        given: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
        name, revision = str(path.parent), hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        given = {"revision": choice.revision}
        name, revision = choice.name, choice.revision
    try:
        with _one_reading(), contextlib.redirect_stderr(io.StringIO()):  # bars that nothing else switches off
            tokenizer = AutoTokenizer.from_pretrained(name, **given)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **given)
    except (OSError, ValueError) as error:
        if not choice.from_hub:
            raise
        why = str(error).strip().splitlines()[0][:200]
        way_out = f"Fetch it where there is a network ({why}), or use --model {TINY_QWEN3}."
        raise ConfigError("model", "must be in the hub's cache or to be fetched", name, way_out) from error
    return model, tokenizer, revision


@contextlib.contextmanager
def _one_reading() -> Iterator[None]:
    """Let a GGUF file be read once: its 50,000 words take seconds, and three readers ask for them."""
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError:
        yield
        return
    reader = gguf.GGUFReader
    gguf.GGUFReader = functools.cache(reader)
    try:
        yield
    finally:
        gguf.GGUFReader = reader


def _prompt(tokenizer: Any, question: str) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        return [int(one) for one in tokenizer(question, add_special_tokens=False)["input_ids"]]
    # Without one, some templates put a long system message of their own.
    talk = [{"role": "system", "content": ""}, {"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    return [int(one) for one in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _letters(tokenizer: Any, vocabulary: int) -> np.ndarray:
    """Return for each token how many letters it has and how many are an e; special ids have none."""
    counts = np.zeros((vocabulary, 2), dtype=np.int64)
    special = set(tokenizer.all_special_ids)
    for place, text in enumerate(
        tokenizer.batch_decode([[one] for one in range(_known(tokenizer, vocabulary))])
    ):
        if place not in special:
            counts[place] = sum(map(str.isalpha, text)), text.lower().count("e")
    return counts


def _known(tokenizer: Any, vocabulary: int) -> int:
    return min(len(tokenizer), vocabulary)


def reward_of(letters: np.ndarray, tokens: Sequence[int]) -> float:
    """Return the reward of a response: the share of its letters that are an e; 0 without letters.

    Examples
    --------
    >>> reward_of(np.array([[4, 1], [0, 0], [6, 4]]), [0, 1, 2])
    0.5
    """
    total, found = letters[list(tokens)].sum(axis=0) if len(tokens) else (0, 0)
    return float(found / total) if total else 0.0
