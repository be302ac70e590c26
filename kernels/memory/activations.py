"""What a training step keeps for its backward pass: layer activations by recomputation, and the logits' peak.

Per layer and token the backward pass needs these elements, of 2 bytes each (Korthikanti et al. 2022,
"Reducing Activation Recomputation in Large Transformer Models", section 4.1, tensor by tensor)::

    inputs of the two norms                   2 h         (h hidden size)
    inputs of the attention and the MLP       2 h
    two dropout masks, 1 byte each            2 h bytes   only with dropout
    queries, keys, values                     q + k + v
    input of the output projection            o           (o = values of all heads)
    MLP between its projections               2 f, or 3 f when gated (SwiGLU: gate, up and their product)
    attention weights                         a s         (a heads, s tokens) if written and not recomputed
    their dropout mask (1 byte) and result    3 a s bytes with the weights, only with dropout

With multi-head attention, an ungated MLP of f = 4 h and dropout this is the paper's ``34 h + 5 a s`` bytes
per token, and without the last two lines Megatron-LM's ``18 h + 4 f``. Megatron-LM charges that to
grouped-query and gated models too; we count the tensors they have (fewer keys, one more in the MLP, no
dropout). Its estimate also holds what is not the layers': input ids, the embedding's dropout, the logits
(:func:`logits_peak_bytes` here) and, without sequence parallelism, 5 % on top and ``f = 4 h`` for any model.

``selective`` recomputes the attention's inside; fused (flash) attention never writes it. ``full`` keeps each
layer's input and recomputes one layer at a time, so one layer's other tensors come on top. Sequence
parallelism cuts everything by the tensor-parallel size; without it the first three lines stay whole.
Tensors and bytes agree with what PyTorch's autograd saves for one layer of fused kernels (a test has the
measurements). Not counted: those kernels' fp32 statistics (one number per norm row, and per head and token);
what unfused code adds, fp32 copies in a norm and ``silu(gate)``, f more; communication buffers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._arguments import Integers, Numbers, choice, flag, listed
from ._exact import Exact, amount, check_divides, check_shapes, count

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, eq=False)
class ActivationMemory:
    """Activation bytes on one rank.

    ``stored_bytes`` lie there at the end of the forward pass, ``working_bytes`` come on top while the
    backward pass works on one layer, ``total_bytes`` is their sum.
    """

    stored_bytes: Integers
    working_bytes: Integers
    total_bytes: Integers


@dataclass(frozen=True)
class _Split:
    """Bytes of which one part lies whole on every rank and the other is cut by tensor parallelism."""

    whole: Exact
    cut: Exact

    def __add__(self, other: _Split) -> _Split:
        return _Split(self.whole + other.whole, self.cut + other.cut)

    def __mul__(self, factor: Exact) -> _Split:
        return _Split(self.whole * factor, self.cut * factor)

    def on_rank(self, ranks: Exact) -> Exact:
        return (self.whole * ranks + self.cut).ceil_divide(ranks)


def _token_bytes(
    sizes: dict[str, Exact], *, gated: bool, dropout: bool, sequence_parallel: bool, fused_attention: bool
) -> tuple[_Split, _Split, _Split]:
    """Return a layer's bytes per token: its input, its other kept tensors, attention's scores."""
    nothing, element, hidden = Exact(0), sizes["element_bytes"], sizes["hidden_size"]
    entry = hidden * element
    # The second norm's input, the attention's input, and the MLP's, once for each expert a token goes to.
    between = entry * (sizes["experts_per_token"] + 2) + sizes["extra_elements"] * element
    if dropout:
        between = between + hidden * 2
    heads = sizes["query_size"] + sizes["key_size"] + sizes["value_size"] + sizes["output_size"]
    inner = (heads + sizes["ffn_size"] * (3 if gated else 2)) * element
    weights = sizes["num_heads"] * sizes["tokens_per_sequence"]
    scores = weights * (element * 2 + 1) if dropout else weights * element
    if sequence_parallel:
        first, rest = _Split(nothing, entry), _Split(nothing, between + inner)
    else:
        first, rest = _Split(entry, nothing), _Split(between, inner)
    return first, rest, _Split(nothing, nothing if fused_attention else scores)


def _read_sizes(
    counts: dict[str, Any], tensor_parallel: Any, element_bytes: Any
) -> tuple[dict[str, Exact], tuple[int, ...]]:
    """Read all numbers of a layer and give them with their common shape."""
    sizes = {field: count(field, size) for field, size in counts.items()}
    sizes["tensor_parallel"] = count("tensor_parallel", tensor_parallel, minimum=1)
    sizes["element_bytes"] = amount("element_bytes", element_bytes)
    shape = check_shapes(**sizes)
    check_divides("tensor_parallel", sizes["tensor_parallel"], "num_heads", sizes["num_heads"])
    return sizes, shape


def _memory(
    entry: _Split,
    rest: _Split,
    scores: _Split,
    sizes: dict[str, Exact],
    shape: tuple[int, ...],
    recompute: str,
) -> ActivationMemory:
    """Turn bytes per token and layer into what is stored and what comes back."""
    kept = {"none": entry + rest + scores, "selective": entry + rest, "full": entry}[recompute]
    # Working on a layer brings back what was not kept of it, once.
    again = {"none": _Split(Exact(0), Exact(0)), "selective": scores, "full": rest + scores}[recompute]
    tokens = (sizes["num_sequences"] * sizes["tokens_per_sequence"]).broadcast(shape)
    ranks, layers = sizes["tensor_parallel"], sizes["num_layers"]
    stored = (kept * (tokens * layers)).on_rank(ranks)
    working = (again * (tokens * layers.minimum(1))).on_rank(ranks)
    return ActivationMemory(
        stored.result("stored_bytes"),
        working.result("working_bytes"),
        (stored + working).result("total_bytes"),
    )


def activation_bytes(
    *,
    num_sequences: Numbers,
    tokens_per_sequence: Numbers,
    num_layers: Numbers,
    hidden_size: Numbers,
    ffn_size: Numbers,
    num_heads: Numbers,
    query_size: Numbers | None = None,
    key_size: Numbers | None = None,
    value_size: Numbers | None = None,
    output_size: Numbers | None = None,
    extra_elements: Numbers = 0,
    experts_per_token: Numbers = 1,
    recompute: str = "selective",
    gated: bool = True,
    dropout: bool = False,
    tensor_parallel: Numbers = 1,
    sequence_parallel: bool = False,
    fused_attention: bool = True,
    element_bytes: Numbers = 2,
) -> ActivationMemory:
    """Estimate the activations of one micro batch on one rank.

    Parameters
    ----------
    num_sequences, tokens_per_sequence : int or array_like
        The micro batch on this rank.
    num_layers, hidden_size, num_heads : int or array_like
        Layers on this rank (a pipeline stage's, times its micro batches in flight), hidden size, query heads.
    ffn_size : int or array_like
        Width between the MLP's projections; for a mixture of experts the width one token meets, experts per
        token times expert width plus the shared experts'.
    query_size, key_size, value_size, output_size : int or array_like, optional
        Elements per token of queries, keys, values, and of the attention's result before its output
        projection. Left out, queries and result are ``hidden_size``, keys are as queries and values as keys.
    extra_elements : int or array_like
        Further elements kept per token and layer (latents of MLA, inputs of q/k norms).
    experts_per_token : int or array_like
        Copies of the MLP's input; a token is sent to that many experts.
    recompute : {"selective", "none", "full"}
        What is computed again in the backward pass.
    gated, dropout, sequence_parallel, fused_attention : bool
        A gated MLP; dropout masks; activations split along the sequence where they are not split by heads;
        an attention that never writes its scores, for which ``none`` and ``selective`` are the same.
    tensor_parallel : int or array_like
        Ranks that split heads and MLP; must divide ``num_heads``.
    element_bytes : number or array_like
        2 for bf16.

    Returns
    -------
    ActivationMemory
        ``stored_bytes``, ``working_bytes``, ``total_bytes``.

    Raises
    ------
    ConfigError
        Negative or fractional counts, NaN, bool, an unknown ``recompute``, heads that do not divide.

    Examples
    --------
    GPT-3's layer in the paper: ``s b h (34 + 5 a s / h)``.

    >>> layer = dict(num_sequences=1, tokens_per_sequence=2048, num_layers=1, hidden_size=12288,
    ...              ffn_size=49152, num_heads=96, gated=False, dropout=True, fused_attention=False)
    >>> activation_bytes(**layer, recompute="none").stored_bytes == 2048 * (34 * 12288 + 5 * 96 * 2048)
    True
    >>> activation_bytes(**layer, recompute="full").stored_bytes == 2048 * 12288 * 2
    True
    """
    choice("recompute", recompute, RECOMPUTE, way_out="Choose one.")
    query = hidden_size if query_size is None else query_size
    key = query if key_size is None else key_size
    value = key if value_size is None else value_size
    counts = {
        "num_sequences": num_sequences,
        "tokens_per_sequence": tokens_per_sequence,
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "ffn_size": ffn_size,
        "num_heads": num_heads,
        "query_size": query,
        "key_size": key,
        "value_size": value,
        "output_size": query if output_size is None else output_size,
        "extra_elements": extra_elements,
        "experts_per_token": experts_per_token,
    }
    sizes, shape = _read_sizes(counts, tensor_parallel, element_bytes)
    flags = {
        "gated": gated,
        "dropout": dropout,
        "sequence_parallel": sequence_parallel,
        "fused_attention": fused_attention,
    }
    entry, rest, scores = _token_bytes(sizes, **{name: flag(name, given) for name, given in flags.items()})
    return _memory(entry, rest, scores, sizes, shape, recompute)


def logits_peak_bytes(
    num_tokens: Numbers,
    vocabulary_size: Numbers,
    *,
    copy_bytes: Iterable[Numbers] = (2, 4, 4, 4),
    chunk_tokens: Numbers | None = None,
    tensor_parallel: Numbers = 1,
) -> Integers:
    """Return the peak of the loss: all copies of the logits that exist at once.

    ``min(tokens, chunk) * ceil(vocabulary / tensor_parallel) * sum(copy_bytes)``.

    Parameters
    ----------
    num_tokens : int or array_like
        Tokens in the micro batch that reach the loss.
    vocabulary_size : int or array_like
        Entries of the vocabulary.
    copy_bytes : iterable of number
        Bytes per logit of each live copy: bf16 logits, their fp32 cast, log-softmax and gradient by default.
        A fused loss keeps fewer; ``(4,)`` is one fp32 copy, as in decoding.
    chunk_tokens : int or array_like, optional
        Tokens for which logits exist at once, for a loss computed in chunks.
    tensor_parallel : int or array_like
        Ranks that split the vocabulary, padded to a multiple of them.

    Returns
    -------
    int or numpy.ndarray
        Bytes on one rank.

    Raises
    ------
    ConfigError
        Negative, NaN, bool or fractional counts.

    Examples
    --------
    A Qwen3 vocabulary and 8192 tokens are 17.4 GB, though the model's layers keep little more:

    >>> logits_peak_bytes(8192, 151936)
    17425235968
    """
    tokens = count("num_tokens", num_tokens)
    vocabulary = count("vocabulary_size", vocabulary_size, minimum=1)
    ranks = count("tensor_parallel", tensor_parallel, minimum=1)
    sizes = listed("copy_bytes", copy_bytes, "List the bytes of each copy, such as (2, 4).")
    each = sum((amount("copy_bytes", size) for size in sizes), Exact(0))
    chunk = tokens if chunk_tokens is None else count("chunk_tokens", chunk_tokens, minimum=1)
    check_shapes(
        num_tokens=tokens,
        vocabulary_size=vocabulary,
        tensor_parallel=ranks,
        chunk_tokens=chunk,
        copy_bytes=each,
    )
    return (tokens.minimum(chunk) * vocabulary.ceil_divide(ranks) * each).result("logits_peak_bytes")
