"""``lagsweep engine``: inference engines beside request logs."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "fit": "Fit an engine to a request log and write ENGINE.toml.",
    "show": "Simulate requests on a given engine.",
    "cards": "List the shipped accelerators with their sources.",
}


class _EngineGroup(click.Group):
    """A group whose commands are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f".{cmd_name}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(name="engine", cls=_EngineGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Inference engines step by step: fitted to a request log, or tried on one."""
