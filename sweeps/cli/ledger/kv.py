"""``lagsweep ledger kv``: bytes per token and per sequence, and what a pool admits, from raw numbers."""

from __future__ import annotations

from typing import Any

import click

from ....kernels.errors import ConfigError
from ...json_text import json_document
from .options import KV_FORMATS, ByteSize, ListOf

_WHOLE = click.IntRange(min=1)


@click.command(name="kv")
@click.option("--layers", type=ListOf(_WHOLE), required=True, help="One number, or one per pipeline stage.")
@click.option("--kv-heads", type=_WHOLE, required=True, help="num_key_value_heads, not attention heads.")
@click.option("--head-dim", type=_WHOLE, required=True, help="As published; not hidden size over heads.")
@click.option("--tokens", type=_WHOLE, default=8192, show_default=True, help="Length of one sequence.")
@click.option("--sequences", type=_WHOLE, default=1, show_default=True, help="Sequences at once.")
@click.option("--kv-format", type=click.Choice(list(KV_FORMATS)), default="bf16", show_default=True)
@click.option("--tensor-parallel", type=_WHOLE, default=1, show_default=True, help="Ranks of one engine.")
@click.option("--block-tokens", type=_WHOLE, default=16, show_default=True, help="Page size in tokens.")
@click.option("--pool", type=ListOf(ByteSize()), help="KV memory per GPU, one size or one per stage.")
@click.option("--prompt-tokens", type=click.IntRange(min=0), default=0, help="Tokens that a group shares.")
@click.option("--group-size", type=_WHOLE, default=1, show_default=True, help="Samples per prompt.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(as_json: bool, **options: Any) -> None:
    """KV cache from raw numbers: per token, per sequence, what a pool admits.

    All bytes are those of one GPU. With several pipeline stages need and pool are compared stage by stage.
    """
    document = _sums(options)
    if as_json:
        click.echo(json_document("ledger-kv", document, indent=1))
    else:
        _print(document)


def _sums(options: dict[str, Any]) -> dict[str, Any]:
    from ....kernels.memory.kv_cache import kv_cache_bytes

    layers, pool, tokens = options["layers"], options["pool"], options["tokens"]
    if pool is not None and len(pool) not in (1, len(layers)):
        rule, way_out = "must be one size, or one for each stage", f"--layers lists {len(layers)} stages."
        raise ConfigError("--pool", rule, len(pool), way_out)
    element, scale = KV_FORMATS[options["kv_format"]]
    shape = {
        "num_kv_heads": options["kv_heads"],
        "head_dim": options["head_dim"],
        "element_bytes": element,
        "scale_bytes_per_token_head": scale,
        "tensor_parallel": options["tensor_parallel"],
    }
    stages = []
    for stage, count in enumerate(layers):
        needed = kv_cache_bytes(
            options["sequences"], tokens, count, block_tokens=options["block_tokens"], **shape
        )
        per_token = int(kv_cache_bytes(1, 1, count, **shape))
        one = {"stage": stage, "layers": count, "bytes_per_token": per_token, "needed_bytes": needed}
        if pool is not None:
            one |= _admitted(pool[stage if len(pool) > 1 else 0], per_token, options)
        stages.append(one)
    document = {**options, "bytes_are": "per GPU", "stages": stages}
    if pool is not None:
        document["max_tokens"] = min(stage["max_tokens"] for stage in stages)
        document["sequences_admitted"] = min(stage["sequences_admitted"] for stage in stages)
    return document


def _admitted(pool: int, per_token: int, options: dict[str, Any]) -> dict[str, Any]:
    from ....kernels.memory.kv_capacity import max_sequences

    fits = max_sequences(
        pool,
        per_token,
        options["tokens"],
        block_tokens=options["block_tokens"],
        shared_prefix_tokens=options["prompt_tokens"],
        group_size=options["group_size"],
    )
    return {
        "pool_bytes": pool,
        "blocks": fits.blocks,
        "blocks_per_sequence": fits.blocks_per_sequence,
        "shared_blocks_per_group": fits.shared_blocks,
        "max_tokens": fits.blocks * options["block_tokens"],
        "sequences_admitted": fits.sequences,
    }


def _print(document: dict[str, Any]) -> None:
    from ....kernels.memory.units import BYTES_PER_GB, BYTES_PER_GIB
    from .print import print_table, say

    say(
        f"Sequences: {document['sequences']:,} of {document['tokens']:,} tokens, pages of "
        f"{document['block_tokens']}, {document['kv_format']}; all sizes are per GPU."
    )
    headings = ["Stage", "Layers", "B/token", "GiB", "GB"]
    pooled = document["pool"] is not None
    headings += ["Pool GiB", "Max tokens", "Admitted"] if pooled else []
    rows = []
    for stage in document["stages"]:
        needed = stage["needed_bytes"]
        row = [str(stage["stage"]), str(stage["layers"]), f"{stage['bytes_per_token']:,}"]
        row += [f"{needed / BYTES_PER_GIB:.2f}", f"{needed / BYTES_PER_GB:.2f}"]
        if pooled:
            row += [f"{stage['pool_bytes'] / BYTES_PER_GIB:.2f}", f"{stage['max_tokens']:,}"]
            row.append(f"{stage['sequences_admitted']:,}")
        rows.append(row)
    print_table(headings, rows)
    if pooled:
        say(
            f"The tightest stage admits {document['sequences_admitted']:,} sequences, "
            f"{document['max_tokens']:,} tokens in all."
        )
