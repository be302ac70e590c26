"""A Qwen3 of about a hundred thousand parameters, made from a seed in a second, without a download.

It is random but for a short training on made-up sentences, so that its responses end now and then. Its
tokenizer is a byte-level BPE of the same sentences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = (
    "red",
    "green",
    "blue",
    "apple",
    "pear",
    "monday",
    "venus",
    "honey",
    "violin",
    "rome",
    "seven",
    "yes",
)
_FRAMES = ("the {0} one", "{0} and {1}", "a {0}", "{0}", "it is {0} or {1}", "hello {0} {1} {0}")
_STEPS, _ROWS, _TOKENS = 60, 16, 24
END, PAD = "<|im_end|>", "<|endoftext|>"


def sentences(count: int, seed: int) -> list[str]:
    """Return made-up sentences.

    Examples
    --------
    >>> len(sentences(3, 0))
    3
    """
    rng = np.random.default_rng(seed)
    frames, names = rng.integers(len(_FRAMES), size=count), rng.integers(len(_NAMES), size=(count, 2))
    return [_FRAMES[frame].format(*(_NAMES[one] for one in pair)) for frame, pair in zip(frames, names)]


def tiny_qwen3(seed: int) -> tuple[Any, Any]:
    """Make the model and its tokenizer.

    Parameters
    ----------
    seed : int
        Of weights and sentences.

    Returns
    -------
    model, tokenizer
        The model in float32; both ids that end a response are known to it, as in Qwen3.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    texts = sentences(_STEPS * _ROWS, seed)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=288, special_tokens=[PAD, END], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=PAD, model_input_names=["input_ids", "attention_mask"]
    )
    end, pad = tokenizer.convert_tokens_to_ids([END, PAD])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
        eos_token_id=[end, pad],
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = [end, pad]
    _train(model, [[*tokenizer(text)["input_ids"], end] for text in texts], pad)
    return model.eval(), tokenizer


def _train(model: Any, rows: list[list[int]], pad: int) -> None:
    """Teach it the sentences, a little."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(_STEPS):
        batch = rows[step * _ROWS : (step + 1) * _ROWS]
        ids = torch.full((_ROWS, _TOKENS), pad)
        for row, tokens in zip(ids, batch):
            row[: len(tokens)] = torch.tensor(tokens[:_TOKENS])
        scores = model(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
        wanted = ids[:, 1:]
        # What comes after the end is no text.
        active = (wanted != pad).float()
        told = scores.gather(-1, wanted[..., None])[..., 0]
        loss = -(told * active).sum() / active.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
