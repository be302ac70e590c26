"""Join stores from Python: the parts of a job array, or stores of one spec with different seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...kernels.errors import ConfigError
from ..checks import path_of
from ..execute.options import Observer
from ..execute.progress import checked_progress
from ..store.joining import merged_folders
from ..store.store import open_sweep

if TYPE_CHECKING:
    import xarray


def merge_stores(
    stores: str | Path | Sequence[str | Path],
    store: str | Path | None = None,
    progress: Observer | None = None,
) -> xarray.Dataset:
    """Join the parts of a job array, or stores of one spec and different seeds, into one store.

    Parameters
    ----------
    stores : path, or sequence of paths
        One path is the store whose parts lie beside it; several are joined into `store`. They stay.
    store : path, optional
        The folder of the joined store, which must not exist.
    progress : bool, callable or Progress, optional

    Returns
    -------
    xarray.Dataset
        That of one process.

    Raises
    ------
    ConfigError
        For anything wrong in the arguments.
    StoreError
        If one is in use, damaged, of another spec or revision, or runs are missing or repeated.

    Examples
    --------
    >>> import tempfile
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> base, store = PipelineConfig(duration_seconds=30), Path(tempfile.mkdtemp()) / "lags"
    >>> for number in (1, 2):
    ...     part = run_sweep(base, {"max_lag": [0, 1]}, seeds=4, store=store, task=(number, 2))
    >>> dict(merge_stores(store).sizes)
    {'max_lag': 2, 'seed': 4, 'lag': 65}
    """
    if isinstance(stores, str | Path):
        folders = [path_of("stores", stores)]
    elif isinstance(stores, tuple | list):
        folders = [path_of("stores", folder) for folder in stores]
    else:
        raise ConfigError("stores", "must be a path or a list of paths", stores, "Name the folders.")
    target = None if store is None else path_of("store", store)
    return open_sweep(merged_folders(folders, target, checked_progress(progress)))
