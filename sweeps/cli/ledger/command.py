"""``lagsweep ledger``: the memory of one RL step by phase, and the sums around it as sub-commands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from ...json_text import json_document
from .options import KV_FORMATS, ByteSize

if TYPE_CHECKING:
    from ...memory.ledger import Ledger, LedgerSettings

_SUMS = {
    "kv": "KV cache from raw numbers: per token, per sequence, what a pool admits.",
    "sync": "Weight synchronisation: transfer time, fan-out, cadence and lag.",
    "checkpoint": "Checkpoint intervals and what they cost.",
    "drift": "Drift from a logged ESS, KL or clip ratio, or from records.",
    "models": "List the shipped model shapes with their sources.",
}


class _LedgerGroup(click.Group):
    """A group whose sums are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUMS:
            return None
        return import_module(f".{cmd_name}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Other sums"):
            formatter.write_dl(list(_SUMS.items()))


_WHOLE = click.IntRange(min=1)
_OR_NONE = click.IntRange(min=0)


@click.group(name="ledger", cls=_LedgerGroup, invoke_without_command=True)
@click.option("--model", help="A shipped model (see 'ledger models') or a path to a config.json.")
@click.option("--gpus", type=_WHOLE, default=8, show_default=True, help="GPUs that train (ZeRO over all).")
@click.option("--rollout-gpus", type=_WHOLE, help="GPUs of their own for the engines; default: the same.")
@click.option("--tensor-parallel", type=_WHOLE, default=1, show_default=True, help="GPUs of one engine.")
@click.option("--context", type=_WHOLE, default=8192, show_default=True, help="Tokens, prompt included.")
@click.option("--sequences", type=_WHOLE, default=64, show_default=True, help="At once, over all engines.")
@click.option("--prompt-tokens", type=_OR_NONE, default=0, help="Tokens that a group shares.")
@click.option("--group-size", type=_WHOLE, default=1, show_default=True, help="Samples per prompt.")
@click.option("--kv-format", type=click.Choice(list(KV_FORMATS)), default="bf16", show_default=True)
@click.option("--block-tokens", type=_WHOLE, default=16, show_default=True, help="Page size of the cache.")
@click.option("--window-policy", default="payload", show_default=True, help="What windowed layers hold.")
@click.option("--engine-format", default="bf16", show_default=True, help="bf16, fp8 or mxfp4-experts.")
@click.option("--recipe", default="adam_mixed", show_default=True, help="Bytes per parameter, by name.")
@click.option("--lora-rank", type=_WHOLE, help="Train adapters of this rank instead of the model.")
@click.option("--zero-stage", type=click.IntRange(0, 3), default=3, show_default=True)
@click.option("--shard-group", type=_WHOLE, help="GPUs in one group of hybrid sharding.")
@click.option("--micro-batch-tokens", type=_WHOLE, help="Per GPU; default: one context.")
@click.option(
    "--recompute", type=click.Choice(["none", "selective", "full"]), default="full", show_default=True
)
@click.option("--logits-chunk", type=_WHOLE, help="Tokens whose logits exist at once in the loss.")
@click.option("--reference-model", is_flag=True, help="Keep a frozen copy, sharded over all GPUs.")
@click.option("--critic", is_flag=True, help="Train a critic of the same shape.")
@click.option("--offload-training", is_flag=True, help="Training state is on the host while engines run.")
@click.option("--engine-awake", is_flag=True, help="Engines keep weights and cache while training.")
@click.option("--bucket", type=ByteSize(), default="1GiB", show_default=True, help="Of weight publication.")
@click.option("--device-memory", type=ByteSize(), default="80GB", show_default=True, help="Of one GPU.")
@click.option(
    "--reserve", type=ByteSize(), default="0B", show_default=True, help="Kept for what is left out."
)
@click.option("--check", is_flag=True, help="Exit with 1 when a phase does not fit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.pass_context
def command(ctx: click.Context, model: str | None, check: bool, as_json: bool, **options: Any) -> int:
    """Memory of one RL step on each GPU, phase by phase, and what fits.

    Sizes need a unit: GB is 10**9 bytes, GiB is 2**30.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from ...memory.ledger import build_ledger
    from ...memory.models import load_model, shipped_models

    if model is None:
        ctx.fail(
            f"--model: is required. Known are {', '.join(shipped_models())}; or a path to a config.json."
        )
    ledger = build_ledger(load_model(model), _settings(options))
    if as_json:
        click.echo(json_document("ledger", _document(ledger), indent=1))
    else:
        _print(ledger)
    return 1 if check and not ledger.peak.fits else 0


def _settings(options: dict[str, Any]) -> LedgerSettings:
    from ...memory.ledger import LedgerSettings

    element, scale = KV_FORMATS[options.pop("kv_format")]
    renamed = {
        "context": "context_tokens",
        "prompt_tokens": "shared_prompt_tokens",
        "shard_group": "shard_group_size",
        "logits_chunk": "logits_chunk_tokens",
        "bucket": "bucket_bytes",
        "device_memory": "device_bytes",
        "reserve": "reserve_bytes",
    }
    awake = options.pop("engine_awake")
    values: dict[str, Any] = {renamed.get(name, name): value for name, value in options.items()}
    return LedgerSettings(**values, kv_element_bytes=element, kv_scale_bytes=scale, engine_sleeps=not awake)


def _document(ledger: Ledger) -> dict[str, Any]:
    from dataclasses import asdict

    from ....kernels.memory.parameters import parameter_count

    peak, record = ledger.peak, ledger.record
    counted = parameter_count(record.shape)
    return {
        "model": record.shape.name,
        "sources": list(record.sources),
        "parameters": counted.total,
        "active_parameters": counted.active,
        "parameters_label": record.parameters_label,
        "parameters_source": record.published_parameters_source,
        "settings": asdict(ledger.settings),
        "device_bytes": ledger.settings.device_bytes,
        "peak_phase": peak.phase,
        "peak_bytes": peak.peak_bytes,
        "headroom_bytes": peak.headroom_bytes,
        "dominant_component": peak.dominant_component,
        "fits": peak.fits,
        "phases": {
            name: {
                "total_bytes": total,
                "headroom_bytes": (peak.phase_headroom_bytes or {})[name],
                "components_bytes": peak.phase_components[name],
            }
            for name, total in peak.phase_totals.items()
        },
        "most_sequences": ledger.most_sequences,
        "longest_context_tokens": ledger.longest_context_tokens,
        "notes": list(ledger.notes),
        "left_out": list(ledger.left_out),
    }


def _print(ledger: Ledger) -> None:
    from .print import print_ledger

    print_ledger(ledger)
