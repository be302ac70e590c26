"""``lagsweep completion``: the script that teaches a shell the command's words."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
_INSTALL = {
    "bash": 'eval "$(lagsweep completion bash)"   # in ~/.bashrc; needs bash 4.4 or newer',
    "zsh": 'eval "$(lagsweep completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "lagsweep completion fish > ~/.config/fish/completions/lagsweep.fish",
}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To install: " + "; ".join(line.split("   ")[0].strip() for line in _INSTALL.values()),
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the shell's completion script.

    It completes sub-commands and flags. The first line of the output says where to put it.
    """
    from click.shell_completion import get_completion_class

    from .main import root

    completion = get_completion_class(shell)
    assert completion is not None  # click.Choice let only these through
    script = completion(root, {}, "lagsweep", "_LAGSWEEP_COMPLETE").source()
    click.echo(f"# {_INSTALL[shell]}\n{script.strip()}")
    return 0
