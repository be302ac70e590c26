"""Write docs/reference.md from the code: public names with signatures and first lines, and every command.

Run ``python docs/make_reference.py``; ``--check`` only tells whether it is current (exit code 1 if not).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import get_args

import click

import lagsweep
from lagsweep import custom, kernels, testing
from lagsweep.kernels.pipeline.metrics import (
    GENERAL_METRICS,
    METRICS,
    OPTIONAL_METRICS,
    WINDOW_METRICS,
    metrics_of_options,
)
from lagsweep.sweeps.cli.main import SUBCOMMANDS, sub_command
from lagsweep.sweeps.config.config import PipelineConfig, field_level
from lagsweep.sweeps.config.help_text import LAYERS

PAGE = Path(__file__).with_name("reference.md")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _signature(name: str, thing: object) -> str:
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
        return name
    try:
        parts: list[str] = []
        for parameter in inspect.signature(thing).parameters.values():
            text = parameter.name
            if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
                parts.append("*")
            if parameter.kind is parameter.VAR_POSITIONAL:
                text = f"*{text}"
            elif parameter.kind is parameter.VAR_KEYWORD:
                text = f"**{text}"
            elif parameter.default is not parameter.empty and isinstance(
                parameter.default, int | float | str | bool | tuple | None
            ):
                text = f"{text}={parameter.default!r}"
            elif parameter.default is not parameter.empty:
                text = f"{text}=…"
            parts.append(text)
    except ValueError:
        return name
    return f"{name}({', '.join(parts)})"


def _front_names() -> list[str]:
    """List the names of ``lagsweep``, grouped by the room that they come from."""
    lines = ["## Names of `lagsweep`", "", "Loaded on first use.", ""]
    things = {name: getattr(lagsweep, name) for name in lagsweep.__all__}
    rooms: dict[str, dict[str, object]] = {}
    for name, thing in things.items():
        if callable(thing):
            rooms.setdefault(".".join(thing.__module__.split(".")[:3]), {})[name] = thing
    for room in sorted(rooms):
        lines += [f"### {_first_line(import_module(room)).rstrip('.')}", "", *_entries(rooms[room])]
    return lines


def _custom_names() -> list[str]:
    """List the names of ``lagsweep.custom``: what rules of the user's own are made from."""
    things = {name: getattr(custom, name) for name in custom.__all__}
    return ["## Names of `lagsweep.custom`", "", _first_line(custom), "", *_entries(things)]


def _testing_names() -> list[str]:
    """List the names of ``lagsweep.testing``: what tests of the user's own are made from."""
    things = {name: getattr(testing, name) for name in testing.__all__}
    return ["## Names of `lagsweep.testing`", "", _first_line(testing), "", *_entries(things)]


def _kernel_names() -> list[str]:
    """List the names of ``lagsweep.kernels`` by topic; what lies in no topic comes last."""
    intro = (
        "Pure functions: scalars or arrays in, which broadcast. A function can be imported from its topic "
        "and from `lagsweep.kernels`; the classes of what functions return, from the topic."
    )
    lines = ["## Names of `lagsweep.kernels`", "", intro, ""]
    things = {name: getattr(kernels, name) for name in kernels.__all__}
    for topic, room in things.items():
        if inspect.ismodule(room):
            lines += [f"### `lagsweep.kernels.{topic}`", "", _first_line(room), ""]
            lines += _entries({name: getattr(room, name) for name in room.__all__})
            things = {name: thing for name, thing in things.items() if name not in room.__all__}
    rest = {name: thing for name, thing in things.items() if not inspect.ismodule(thing)}
    return [*lines, "### `lagsweep.kernels` itself", "", *_entries(rest)]


def _entries(things: dict[str, object]) -> list[str]:
    lines = []
    for name, thing in things.items():
        if isinstance(thing, UnionType):
            text = f"= {' | '.join(one.__name__ for one in get_args(thing))}"
        elif isinstance(thing, Mapping):
            text = f"By name: {', '.join(f'`{key}`' for key in thing)}."
        else:
            text = _first_line(thing) if callable(thing) else f"= {thing!r}"
        lines.append(f"- `{_signature(name, thing)}`  \n  {text}")
        lines += [f"  - {line}" for line in _methods(name, thing)]
    return [*lines, ""]


def _methods(name: str, thing: object) -> list[str]:
    if not isinstance(thing, type) or issubclass(thing, Exception):
        return []
    members = []
    for method, raw in vars(thing).items():
        if method.startswith(("_", "model_")) or (
            not isinstance(raw, classmethod | staticmethod) and not inspect.isfunction(raw)
        ):
            continue
        signature = _signature(f".{method}", getattr(thing, method)).replace("(self, ", "(")
        members.append(f"`{signature}`: {_first_line(raw)}")
    return [line.replace("(self)", "()") for line in members]


def _fields() -> list[str]:
    lines = [
        "## Settings of a pipeline",
        "",
        "Fields of `PipelineConfig`, flags of the command line, axes of a sweep. The core is always there;",
        "options of generation (how decoding and publications go) and rules (groups, batches, admission,",
        "stale work) are off by default.",
        "",
    ]
    lines += ["| field | layer | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in PipelineConfig.model_fields.items():
        default = "lognormal, median 300, sigma 0.6, 16…2048" if name == "response_length" else field.default
        shown = "none" if default is None else default
        lines.append(f"| `{name}` | {LAYERS[field_level(name)]} | {shown} | {field.description} |")
    return [*lines, ""]


def _metrics() -> list[str]:
    lines = [
        "## What a run reports",
        "",
        "Variables of a sweep's dataset; the second table where an option of generation or rules is used,",
        "the third where a setting that brings them is (a queue that holds, fetch, evaluation, failures),",
        "the last over the dimension `window` with the key `windows`.",
        "",
    ]
    tables = (METRICS, GENERAL_METRICS, metrics_of_options(OPTIONAL_METRICS), WINDOW_METRICS)
    for table in tables:
        lines += ["| metric | type | unit | meaning |", "| --- | --- | --- | --- |"]
        lines += [f"| `{m.name}` | {m.dtype} | {m.units} | {m.long_name} |" for m in table]
        lines.append("")
    return lines


def _commands() -> list[str]:
    lines = ["## Commands", "", "`lagsweep COMMAND --help` prints the same.", ""]
    for name in SUBCOMMANDS:
        command = sub_command(name)
        lines += [*_help(command, f"lagsweep {name}")]
        if isinstance(command, click.Group):
            for sub, inner in command.commands.items():
                lines += _help(inner, f"lagsweep {name} {sub}")
    return lines


def _help(command: click.Command, path: str) -> list[str]:
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    return [f"### `{path}`", "", "```text", command.get_help(context).rstrip(), "```", ""]


def page() -> str:
    """Build the page's text."""
    lines = ["# Reference", "", "Made from the code by `python docs/make_reference.py`; do not edit.", ""]
    lines += _fields() + _metrics()
    lines += _front_names() + _custom_names() + _testing_names() + _kernel_names()
    lines += _commands()
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write or check."""
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/reference.md is current" if current else "docs/reference.md is out of date")
        sys.exit(0 if current else 1)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
