"""Published weight synchronisation times beside what the formulas say about them.

Prints Markdown tables, or one JSON document with ``--json``. Four questions, four tables:

1. How far above the lower bound (payload over the line rate) are real publications?
2. Calibrated on one measured size, how well does the formula forecast another one of the same system?
3. Do sparse payloads have the predicted size?
4. How much of a publication is pause, and how much is transfer?

The measurements and every assumption about models and links are in ``benchmarks/data/weight_sync.json``.
The output depends on nothing else, so ``results/published/weight-sync.md`` is this program's output word for
word.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from lagsweep import __version__
from lagsweep.kernels import (
    bucket_count,
    delta_payload_bytes,
    node_fan_out_seconds,
    pipelined_chain_seconds,
    sharded_point_to_point_seconds,
    synchronization_transfer_time,
)

DATA = Path(__file__).parent / "data" / "weight_sync.json"
COMMAND = "python benchmarks/weight_sync_table.py"
Row = dict[str, Any]


def load() -> Row:
    return json.loads(DATA.read_text())


def payload_bytes(row: Row) -> float | None:
    if "payload_bytes" in row:
        return float(row["payload_bytes"])
    return float(row["parameters"] * row["bytes_per_parameter"]) if "parameters" in row else None


def bound_seconds(row: Row, links: Row) -> float | None:
    """The least time that the row's formula allows, without any overhead; None where nothing is known."""
    payload = payload_bytes(row)
    if payload is None or "formula" not in row:
        return None
    rate = links[row["link"]]["gigabytes_per_second"]
    if row["formula"] == "chain":
        return pipelined_chain_seconds(payload, rate, 1)
    if row["formula"] == "shards":
        return sharded_point_to_point_seconds(
            payload,
            senders=row["senders"],
            receivers=row["receivers"],
            copies=row["copies"],
            sender_gigabytes_per_second=rate,
            receiver_gigabytes_per_second=rate,
        )
    return node_fan_out_seconds(
        payload,
        links_per_node=row["links_per_node"],
        link_gigabytes_per_second=rate,
        inner_gigabytes_per_second=links[row["inner"]]["gigabytes_per_second"],
        staged=False,
    )


def against_bounds(data: Row) -> list[Row]:
    table = []
    for row in data["rows"]:
        bound, payload = bound_seconds(row, data["links"]), payload_bytes(row)
        entry = {
            name: row.get(name) for name in ("id", "model", "layout", "method", "source", "note", "link")
        }
        entry |= {"payload_bytes": payload, "bound_seconds": bound, "measured_seconds": row["seconds"]}
        if bound is not None and payload is not None:
            entry["times_bound"] = row["seconds"] / bound
            entry["reached_gigabytes_per_second"] = payload / row["seconds"] / 1e9
        table.append(entry)
    return table


def _by_rate(known: Row, wanted: Row) -> float:
    """Take the rate that one size reached for the other size."""
    reached = payload_bytes(known) / known["seconds"] / 1e9
    return synchronization_transfer_time(payload_bytes(wanted), reached)


def _by_calls(known: list[Row], wanted: Row, links: Row) -> float:
    """Take setup and seconds per call from two bucket sizes; the bytes are the same in all three."""
    rate = links[wanted["link"]]["gigabytes_per_second"]
    payload = payload_bytes(wanted)
    calls = [bucket_count(payload, row["bucket_bytes"]) for row in known]
    per_call = (known[0]["seconds"] - known[1]["seconds"]) / (calls[0] - calls[1])
    setup = known[1]["seconds"] - synchronization_transfer_time(
        payload, rate, calls=calls[1], seconds_per_call=per_call
    )
    return synchronization_transfer_time(
        payload,
        rate,
        setup_seconds=setup,
        calls=bucket_count(payload, wanted["bucket_bytes"]),
        seconds_per_call=per_call,
    )


def forecasts(data: Row) -> list[Row]:
    rows = {row["id"]: row for row in data["rows"]}
    table = []
    for item in data["forecasts"]:
        known, wanted = [rows[name] for name in item["from"]], rows[item["to"]]
        if item["kind"] == "rate":
            forecast = _by_rate(known[0], wanted)
        else:
            forecast = _by_calls(known, wanted, data["links"])
        table.append(
            {
                "kind": item["kind"],
                "from": [f"{row['model']} ({row['layout']})" for row in known],
                "to": f"{wanted['model']} ({wanted['layout']})",
                "method": wanted["method"],
                "forecast_seconds": forecast,
                "measured_seconds": wanted["seconds"],
                "error": forecast / wanted["seconds"] - 1.0,
            }
        )
    return table


def deltas(data: Row) -> list[Row]:
    table = []
    for item in data["deltas"]:
        predicted = delta_payload_bytes(item["parameters"], item["changed_fraction"])
        table.append(
            {**item, "predicted_bytes": predicted, "error": predicted / item["measured_bytes"] - 1.0}
        )
    return table


def report(data: Row) -> Row:
    bounds = against_bounds(data)
    ratios = [entry["times_bound"] for entry in bounds if "times_bound" in entry]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    errors = [abs(entry["error"]) for entry in forecasts(data)]
    return {
        "command": f"{COMMAND} --json",
        "versions": {"lagsweep": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "links": data["links"],
        "bounds": bounds,
        "summary": {
            "rows": len(bounds),
            "rows_with_a_bound": len(ratios),
            "times_bound_quartiles": [low, middle, high],
            "times_bound_smallest": min(ratios),
            "forecast_median_absolute_error": statistics.median(errors),
        },
        "forecasts": forecasts(data),
        "deltas": deltas(data),
        "pauses": data["pauses"],
    }


def _table(header: list[str], lines: list[list[str]], numbers: range) -> str:
    """A Markdown table; ``numbers`` says which columns are numbers."""
    rule = ["---:" if column in numbers else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def _bounds_text(found: Row) -> list[str]:
    known = [entry for entry in found["bounds"] if "times_bound" in entry]
    unknown = [entry for entry in found["bounds"] if "times_bound" not in entry]
    lines = [
        [
            entry["model"],
            entry["layout"],
            entry["method"],
            entry["link"],
            f"{entry['payload_bytes'] / 1e9:,.1f}",
            f"{entry['bound_seconds']:.3g}",
            f"{entry['measured_seconds']:g}",
            f"{entry['times_bound']:.3g}",
            f"{entry['reached_gigabytes_per_second']:.3g}",
        ]
        for entry in known
    ]
    header = [
        "model",
        "layout",
        "method",
        "link",
        "payload GB",
        "bound s",
        "measured s",
        "× bound",
        "payload GB/s",
    ]
    summary = found["summary"]
    low, middle, high = summary["times_bound_quartiles"]
    return [
        "## Measured times against the lower bound",
        "",
        "The bound is the payload over the line rate by the formula of the layout: one sender along a chain, "
        "even shards between all ranks, or one copy per node. Links: "
        + "; ".join(
            f"`{name}` {link['gigabytes_per_second']:g} GB/s ({link['basis']})"
            for name, link in found["links"].items()
        )
        + ".",
        "",
        _table(header, lines, range(4, 9)),
        "",
        f"Measured over bound, quartiles of {summary['rows_with_a_bound']} rows: {low:.2g}, {middle:.2g}, "
        f"{high:.2g}; smallest {summary['times_bound_smallest']:.2f}. Bandwidth alone explains the few rows "
        "near 1; gathering, conversion, calls per tensor and waiting make up the rest.",
        "",
        "Notes:",
        "",
        *(f"- {entry['model']}, {entry['method']}: {entry['note']}." for entry in known if entry["note"]),
        "",
        "Without a bound:",
        "",
        *(
            f"- {entry['model']}, {entry['layout']}, {entry['method']}, {entry['measured_seconds']:g} s: "
            f"{entry['note']}."
            for entry in unknown
        ),
    ]


def _forecast_text(found: Row) -> list[str]:
    lines = [
        [
            " and ".join(entry["from"]),
            entry["to"],
            entry["method"],
            f"{entry['forecast_seconds']:.3g}",
            f"{entry['measured_seconds']:g}",
            f"{entry['error']:+.0%}",
        ]
        for entry in found["forecasts"]
    ]
    return [
        "## Calibrated on one size, asked for another",
        "",
        "The rate that one size reached is used for the other; in the last line two bucket sizes give "
        "setup and seconds per call, and a third is asked for.",
        "",
        _table(
            ["calibrated on", "asked for", "method", "forecast s", "measured s", "error"], lines, range(3, 6)
        ),
        "",
        "Within one layout the forecast is a little high, for a part of the time is fixed. Where the larger "
        "model also has more ranks, or the time is all fixed cost, it does not hold: calibrate on the layout "
        "that you ask for.",
    ]


def _delta_text(found: Row) -> list[str]:
    lines = [
        [
            entry["model"],
            f"{entry['changed_fraction']:.2%}",
            f"{entry['predicted_bytes'] / 1e6:,.0f}",
            f"{entry['measured_bytes'] / 1e6:,.0f}",
            f"{entry['error']:+.0%}",
            entry.get("note", ""),
        ]
        for entry in found["deltas"]
    ]
    return [
        "## Sparse payloads: 4 bytes of position and 2 of value per changed element",
        "",
        _table(["model", "changed", "predicted MB", "measured MB", "error", "note"], lines, range(1, 5)),
    ]


def _pause_text(found: Row) -> list[str]:
    lines = [
        [
            entry["model"],
            f"{entry['end_to_end_seconds']:g}",
            f"{entry['pause_seconds']:g}",
            "" if entry["transfer_seconds"] is None else f"{entry['transfer_seconds']:g}",
            f"{entry['pause_seconds'] / entry['end_to_end_seconds']:.0%}",
        ]
        for entry in found["pauses"]
    ]
    return [
        "## Pause and transfer are different times",
        "",
        _table(["model", "end to end s", "pause s", "transfer s", "pause share"], lines, range(1, 5)),
    ]


def text(found: Row) -> str:
    sources = sorted({entry["source"] for part in ("bounds", "deltas", "pauses") for entry in found[part]})
    return "\n".join(
        [
            "# Weight synchronisation: prediction and published measurement",
            "",
            f"Made by `{COMMAND}` from `benchmarks/data/weight_sync.json`. GB are 1e9 bytes.",
            "",
            *_bounds_text(found),
            "",
            *_forecast_text(found),
            "",
            *_delta_text(found),
            "",
            *_pause_text(found),
            "",
            "## Sources",
            "",
            *(f"- {source}" for source in sources),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = report(load())
    print(json.dumps(found, indent=1, ensure_ascii=False) if arguments.json else text(found), end="")


if __name__ == "__main__":
    main()
