"""The command's root: names of sub-commands, exit codes, and errors without tracebacks.

Exit codes: 0 done, 1 findings or partial failure, 2 usage, 3 cannot resume, 130/143 interrupted.
Each sub-command lives in a module of its own, ``<name>_command`` (groups in a folder), which has one
``click.Command`` called ``command``; it is imported only when it is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from ...kernels.errors import Finding, nearest
from .failures import all_missing, failure_of, tell
from .streams import steady_streams

SUBCOMMANDS: dict[str, str] = {
    "run": "Run a sweep from a spec file or from flags.",
    "simulate": "Simulate one run and print what it reports.",
    "show": "Print a stored sweep's table.",
    "verify": "Check a stored sweep: checksums, and a sample of runs again.",
    "merge": "Join the parts of a job array, or stores of other seeds.",
    "compact": "Merge the small units of a finished store.",
    "report": "Write one offline HTML page about a stored sweep.",
    "recommend": "Choose a configuration under constraints.",
    "plan": "Plan a run from a model, GPUs and a workload.",
    "search": "Find the best setting among ranges, with a guarantee.",
    "sensitivity": "Tell which settings move a metric most, over ranges.",
    "compare": "Run several systems' rules on the same rollouts.",
    "trace": "Write one run as a Chrome trace for Perfetto.",
    "calibrate": "Fit a configuration to a run's log.",
    "whatif": "Say what other settings would change in a logged run.",
    "engine": "Fit an inference engine to a request log, or try one.",
    "ledger": "Memory, KV cache, weight sync and checkpoint sums.",
    "validate": "Check rollout records against the contract.",
    "drill": "Break and resume a run in several ways.",
    "presets": "List the configurations of real systems, or explain one.",
    "lab": "Run the ten sections of the lab, end to end.",
    "completion": "Print the shell's completion script.",
}
FOLDERS = ("engine", "ledger")


def sub_command(name: str) -> click.Command:
    """Load a sub-command from its own module."""
    place = f"{name}.command" if name in FOLDERS else f"{name}_command"
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
            rule = f"must be one of {', '.join(SUBCOMMANDS)}"
            finding = Finding("command", rule, name, nearest(name, SUBCOMMANDS))
            error = click.UsageError(str(finding), ctx)
            error.finding = finding  # type: ignore[attr-defined]
            raise error
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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    with steady_streams():
        sys.exit(_exit_code(sys.argv[1:] if arguments is None else arguments))


def _exit_code(arguments: list[str]) -> int:
    try:
        code = root.main(args=arguments, standalone_mode=False, prog_name="lagsweep")
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as raised:
        error = all_missing(raised, arguments)
        failure = failure_of(error)
        if failure is None:
            raise
        tell(error, failure, arguments)
        return failure.exit_code
    return code if isinstance(code, int) else 0
