"""``lagsweep merge``: join the parts of a job array, or stores of different seeds, into one store."""

from __future__ import annotations

from pathlib import Path

import click

from .failures import Stopped
from .shared import print_result


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 some runs failed, 2 usage, 3 cannot be merged, 130/143 interrupted.",
)
@click.argument("stores", nargs=-1, required=True, metavar="STORE...", type=click.Path(path_type=Path))
@click.option("--store", type=click.Path(path_type=Path), help="The folder of the joined store.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(stores: tuple[Path, ...], store: Path | None, as_json: bool, quiet: bool) -> int:
    """Join the parts of a job array, or stores of one spec and different seeds, into one store.

    STORE alone is the folder whose parts lie in STORE.parts; several are joined into --store. All are checked
    first, and stay as they are. The result is that of one process.
    """
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..store.folder_content import content_of_folder
    from ..store.joining import merged_folders
    from ..store.store import open_sweep
    from .signals import stop_at_safe_point

    with stop_at_safe_point() as stop:
        try:
            folder = merged_folders(stores, store, progress_for_terminal(quiet=quiet), stop.event)
        except Cancelled:
            raise Stopped("stopped; nothing is joined, and the parts stay", stop.exit_code) from None
    return print_result(open_sweep(folder), folder, as_json=as_json, content=content_of_folder(folder))
