"""``lagsweep ledger sync``: the time of a weight publication by pattern, and a cadence's cost in lag."""

from __future__ import annotations

from typing import Any

import click

from ....kernels.errors import ConfigError
from ...json_text import json_document
from .options import ByteSize, ListOf

_WHOLE = click.IntRange(min=1)
_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_SECONDS = click.FloatRange(min=0)


@click.command(name="sync")
@click.option("--payload", type=ByteSize(), help="What is sent, with its unit.")
@click.option("--model", help="Send this model's weights in bf16: a shipped name or a config.json.")
@click.option("--gigabytes-per-second", type=_ABOVE_0, help="Link in 1e9 bytes per second.")
@click.option("--gigabits-per-second", type=_ABOVE_0, help="Link as sold, in 1e9 bits per second.")
@click.option("--efficiency", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True)
@click.option("--setup-seconds", type=_SECONDS, default=0.0, show_default=True, help="Once per publication.")
@click.option("--calls", type=click.IntRange(min=0), default=0, help="Tensors or buckets sent one by one.")
@click.option("--bucket", type=ByteSize(), help="Send in buckets of this size: sets the calls.")
@click.option("--seconds-per-call", type=_SECONDS, default=0.0, show_default=True)
@click.option("--receivers", type=_WHOLE, default=1, show_default=True, help="Engines that get a copy.")
@click.option("--updates", type=_WHOLE, default=16, show_default=True, help="Of the cadence table.")
@click.option("--sync-every", type=ListOf(_WHOLE), default="1,2,4,8", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(as_json: bool, **options: Any) -> None:
    """Weight synchronisation: transfer time, fan-out, cadence and lag.

    Bandwidth is in decimal GB/s (1e9 bytes per second), or in bits with --gigabits-per-second.
    """
    document = _sums(options)
    if as_json:
        click.echo(json_document("ledger-sync", document, indent=1))
    else:
        _print(document)


def _payload(options: dict[str, Any]) -> int:

    payload, model = options["payload"], options["model"]
    if (payload is None) == (model is None):
        rule, way_out = "must be given, or else --model", "Give one of the two."
        raise ConfigError("--payload", rule, payload, way_out)
    if payload is not None:
        return payload
    from ....kernels.memory.parameters import parameter_count
    from ...memory.models import load_model

    return 2 * parameter_count(load_model(model).shape).total


def _link(options: dict[str, Any]) -> float:
    from ....kernels.sync.transfer import gigabits_to_gigabytes_per_second

    as_bytes, as_bits = options["gigabytes_per_second"], options["gigabits_per_second"]
    if (as_bytes is None) == (as_bits is None):
        rule, way_out = (
            "must be given, or else --gigabits-per-second",
            "Give one of the two; 1 byte is 8 bits.",
        )
        raise ConfigError("--gigabytes-per-second", rule, as_bytes, way_out)
    return as_bytes if as_bits is None else float(gigabits_to_gigabytes_per_second(as_bits))


def _cadences(options: dict[str, Any], transfer_seconds: float) -> list[dict[str, Any]]:
    from ....kernels.sync.schedule import synchronization_schedule

    cadences = []
    for every in options["sync_every"]:
        schedule = synchronization_schedule(sync_every=every, updates=options["updates"])
        cadences.append(
            {
                "sync_every_updates": every,
                "synchronizations": int(schedule.synchronization_count),
                "mean_lag": float(schedule.mean_lag),
                "max_lag": int(schedule.max_lag),
                "transfer_seconds": float(schedule.synchronization_count * transfer_seconds),
            }
        )
    return cadences


def _sums(options: dict[str, Any]) -> dict[str, Any]:
    from ....kernels.sync.collectives import (
        binomial_tree_seconds,
        fan_out_seconds,
        pipelined_chain_seconds,
    )
    from ....kernels.sync.transfer import bucket_count, transfer_report

    payload, link = _payload(options), _link(options)
    calls = options["calls"] if options["bucket"] is None else int(bucket_count(payload, options["bucket"]))
    report = transfer_report(
        payload,
        link,
        setup_seconds=options["setup_seconds"],
        efficiency=options["efficiency"],
        calls=calls,
        seconds_per_call=options["seconds_per_call"],
    )
    reached, receivers = link * options["efficiency"], options["receivers"]
    patterns = {
        "fan-out, one copy after another": fan_out_seconds(payload, reached, receivers),
        "binomial tree": binomial_tree_seconds(payload, reached, receivers),
        "pipelined chain, 64 chunks": pipelined_chain_seconds(payload, reached, receivers, chunks=64),
    }
    return {
        "payload_bytes": payload,
        "gigabytes_per_second": link,
        "efficiency": options["efficiency"],
        "calls": calls,
        "total_seconds": float(report.total_seconds),
        "setup_seconds": float(report.setup_seconds),
        "call_seconds": float(report.call_seconds),
        "wire_seconds": float(report.wire_seconds),
        "lower_bound_seconds": float(report.lower_bound_seconds),
        "receivers": receivers,
        "wire_seconds_by_pattern": {name: float(seconds) for name, seconds in patterns.items()},
        "updates": options["updates"],
        "cadences": _cadences(options, float(report.total_seconds)),
    }


def _print(document: dict[str, Any]) -> None:
    from .print import both_units, print_table, say

    say(
        f"{both_units(document['payload_bytes'])} over {document['gigabytes_per_second']:g} GB/s "
        f"at {100 * document['efficiency']:g} %."
    )
    parts = [(name, f"{document[f'{name}_seconds']:.3f}") for name in ("setup", "call", "wire", "total")]
    parts.append(("no transfer is faster than", f"{document['lower_bound_seconds']:.3f}"))
    print_table(("One transfer", "seconds"), parts)
    say("")
    patterns = document["wire_seconds_by_pattern"].items()
    heading = f"To {document['receivers']} receivers, wire only"
    print_table((heading, "seconds"), [(name, f"{seconds:.3f}") for name, seconds in patterns])
    say("")
    rows = [
        (
            str(row["sync_every_updates"]),
            str(row["synchronizations"]),
            f"{row['mean_lag']:.2f}",
            str(row["max_lag"]),
            f"{row['transfer_seconds']:.2f}",
        )
        for row in document["cadences"]
    ]
    headings = ("Sync every", "Syncs", "Mean lag", "Max lag", "Transfer seconds")
    say(f"In {document['updates']} updates; lag is counted before the update:")
    print_table(headings, rows)
