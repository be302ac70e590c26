"""The command's root: names of sub-commands, exit codes, and errors without tracebacks.

Exit codes: 0 done, 1 findings or partial failure, 2 usage, 3 cannot resume, 130/143 interrupted.
Each sub-command lives in a module of its own, ``<name>_command`` (``ledger`` in a folder), which has one
``click.Command`` called ``command``; it is imported only when it is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from ...kernels.errors import CheckpointError, ConfigError, LagsweepError, StoreError, nearest

SUBCOMMANDS: dict[str, str] = {
    "run": "Run a sweep from a spec file or from flags.",
    "simulate": "Simulate one run and print what it reports.",
    "show": "Print a stored sweep's table.",
    "verify": "Check a stored sweep: checksums, and a sample of runs again.",
    "report": "Write one offline HTML page about a stored sweep.",
    "recommend": "Choose a configuration under constraints.",
    "compare": "Run several systems' rules on the same rollouts.",
    "trace": "Write one run as a Chrome trace for Perfetto.",
    "ledger": "Memory, KV cache, weight sync and checkpoint sums.",
    "validate": "Check rollout records against the contract.",
    "drill": "Break and resume a run in several ways.",
    "presets": "List the configurations of real systems, or explain one.",
    "lab": "Run the ten sections of the lab, end to end.",
    "completion": "Print the shell's completion script.",
}


def sub_command(name: str) -> click.Command:
    """Load a sub-command from its own module."""
    place = "ledger.command" if name == "ledger" else f"{name}_command"
    return import_module(f".{place}", __package__).command


class _LazyGroup(click.Group):
    """A group that imports a sub-command's module only when the sub-command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return sub_command(cmd_name) if cmd_name in SUBCOMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in SUBCOMMANDS and not name.startswith("-"):
            hint = nearest(name, SUBCOMMANDS)
            ctx.fail(f"command: must be one of {', '.join(SUBCOMMANDS)} (got {name!r}). {hint}".strip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lagsweep", prog_name="lagsweep")
def root() -> None:
    """Simulate asynchronous RL pipelines of language models and sweep their settings.

    Results go to stdout, progress and errors to stderr.
    """


def _about_file(error: OSError) -> str:
    """Word a file error: the path, what the system says, and the way out."""
    reason = error.strerror or str(error)
    path = error.filename if error.filename is not None else "output"
    shown = str(path) if len(str(path)) <= 120 else f"{str(path)[:117]}..."
    return f"{shown}: cannot be used: {reason}. Name another path, or make room for it."


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        code = root.main(args=arguments, standalone_mode=False, prog_name="lagsweep")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) went away: no traceback, and no second error at interpreter exit.
        sys.stderr.close()
        sys.exit(0)
    except (StoreError, CheckpointError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(3)
    except ConfigError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except LagsweepError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"error: {_about_file(error)}", err=True)
        sys.exit(2)
    except MemoryError:
        click.echo(
            "error: memory: must hold what was asked for. Ask for fewer runs, rows or tokens.", err=True
        )
        sys.exit(1)
    except RecursionError:
        click.echo("error: input: must not be nested this deeply. Flatten it.", err=True)
        sys.exit(2)
    except RuntimeError as error:
        if "zstd" not in str(error).lower():
            raise
        # A chunk's checksum or frame does not hold; which one, only `verify` finds out.
        way_out = "`lagsweep verify STORE` names every damaged chunk and how to mend it."
        click.echo(f"error: store: a chunk is damaged and cannot be read ({error}). {way_out}", err=True)
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)
