"""Run a sweep, in memory or into a store, on threads, in the calling thread, or on a Dask cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError
from ..checks import flag_of, path_of
from ..config.config import PipelineConfig
from ..custom.custom import Custom, remember
from ..execute.compiling import compile_first
from ..execute.dask import fill_on_cluster
from ..execute.options import Executor, Observer
from ..execute.plan import CELLS, Part, guessed_run_seconds, plan_parts, total_runs
from ..execute.processes import block_runner
from ..execute.progress import Progress, checked_progress
from ..execute.rounds import run_rounds
from ..execute.threads import RunBlock, run_units, thread_count
from ..execute.unit_arrays import UnitArrays, new_arrays
from ..execute.work import UnitWork, one_unit, recording, tell_failures
from ..results.dataset import build_dataset
from ..results.masks import masks_of
from ..runs.status import DONE
from ..spec.changes import made_with
from ..spec.make import make_spec
from ..spec.reading import read_spec_file
from ..spec.spec import SweepSpec
from ..spec.stopping import parse_rule
from ..store.tasks import read_task
from ..store.writing import run_into_store

if TYPE_CHECKING:
    import xarray

    from ..config.settings import SpecSettings

Results = list[tuple[Part, UnitArrays]]


def run_sweep(
    base: PipelineConfig,
    axes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    seeds: int | Iterable[int],
    store: str | Path | None = None,
    executor: Executor = "threads",
    threads: int | None = None,
    masks: bool = False,
    tables: Sequence[str] = (),
    progress: Observer | None = None,
    windows: int | None = None,
    custom: Custom | None = None,
    baseline: bool = False,
    task: tuple[int, int] | str | None = None,
) -> xarray.Dataset:
    """Run every combination of the axes' values at every seed.

    Parameters
    ----------
    base : PipelineConfig
        What no axis changes.
    axes : mapping, or sequence of mappings
        Axis -> values, or a range as ``{"from": 1, "to": 4}``. The axes are ``queue_cap``, ``max_lag``,
        ``sync_cadence``, or any field. Several mappings are groups: zipped inside, crossed with each other.
    seeds : int or iterable of int
        A number n means ``base.seed`` … ``base.seed + n - 1``.
    store : path, optional
        A folder that keeps the result; the same call goes on where an interrupted one was.
    executor : {"threads", "serial", "processes"} or a Dask client
        Processes are for rules of your own, see `custom`.
    threads : int, optional
        One for each CPU when left out.
    masks : bool
        Add boolean masks over ``rollout``: ``completed``, ``trained``, ``truncated``.
    tables : sequence of str
        Long tables to keep in the store: ``batches``, ``timeline``, ``rollouts``.
    progress : bool, callable or Progress, optional
        True shows a bar; a function is called with (done, total).
    windows : int, optional
        Report by windows of so many updates too, over the dimension ``window``; every cell then needs
        ``stop_after_updates``.
    custom : Custom, optional
        Rules, lengths and metrics of your own; ``executor="processes"`` then runs in several processes.
    baseline : bool
        Run the sequential baseline beside the cells, as the command does by itself: its figures are the
        variables ``baseline_<metric>``.
    task : (int, int), optional
        (3, 16) runs the share of task 3 of 16 into a part of its own beside `store`, and gives that;
        :func:`merge_stores` joins the parts.

    Returns
    -------
    xarray.Dataset
        Dimensions: the axes, then ``seed``; one variable per metric; ``status`` says what became of a run.

    Raises
    ------
    ConfigError
        For anything wrong in the arguments, before anything runs.
    StoreError
        If the store cannot be made, resumed or extended.

    Examples
    --------
    >>> base = PipelineConfig(duration_seconds=30)
    >>> ds = run_sweep(base, axes={"max_lag": [0, 1, 2], "sync_cadence": [1, 2]}, seeds=4)
    >>> dict(ds.sizes)
    {'max_lag': 3, 'sync_cadence': 2, 'seed': 4, 'lag': 65}
    """
    spec = make_spec(
        base,
        axes,
        seeds,
        baseline=flag_of("baseline", baseline),
        masks=flag_of("masks", masks),
        tables=tables,
        windows=windows,
        custom=remember(custom),
    )
    return run_spec(spec, store=store, executor=executor, threads=threads, progress=progress, task=task)


def run_spec(
    spec: SweepSpec,
    store: str | Path | None = None,
    executor: Executor = "threads",
    threads: int | None = None,
    progress: Observer | None = None,
    cancel: threading.Event | None = None,
    task: tuple[int, int] | str | None = None,
) -> xarray.Dataset:
    """Run a sweep that is given as a spec; arguments as :func:`run_sweep`.

    Raises
    ------
    ConfigError, StoreError
        As :func:`run_sweep`.
    Cancelled
        If `cancel` was set before everything was done.
    """
    instance("spec", spec, SweepSpec, "Make one by load_spec.")
    observer = checked_progress(progress)
    stop = (
        threading.Event() if cancel is None else instance("cancel", cancel, Event, "Give a threading.Event.")
    )
    if store is not None:
        store = path_of("store", store)
    share = None if task is None else read_task(task)
    if share is not None and store is None:
        raise ConfigError("task", "needs a store to be a part of", task, "Give store='results/name'.")
    workers = thread_count(executor, threads)
    if spec.tables and store is None:
        raise ConfigError(
            "tables", "need a store to be kept in", list(spec.tables), "Give store='results/name'."
        )
    if store is not None:
        return run_into_store(
            spec, store, executor=executor, threads=threads, progress=observer, cancel=stop, task=share
        )
    compile_first(spec.base, observer)
    if workers is None and spec.custom is None:
        return _in_memory(
            spec,
            observer,
            lambda results: fill_on_cluster(spec, results, executor, progress=observer, cancel=stop),
        )
    with block_runner(executor, workers, spec.custom) as run:
        return _in_memory(
            spec, observer, lambda results: _fill_on_threads(spec, results, workers or 0, observer, stop, run)
        )


def _in_memory(spec: SweepSpec, progress: Progress, fill: Callable[[Results], None]) -> xarray.Dataset:
    parts = plan_parts(spec)
    results = [(part, new_arrays(part)) for part in parts]
    progress.begin(total_runs(parts))
    try:
        fill(results)
    finally:
        progress.end()
    masks = masks_of(results[0][1], parts[0].layout.shape) if spec.masks else None
    return build_dataset(spec, results, masks)


def _fill_on_threads(
    spec: SweepSpec,
    results: Results,
    threads: int,
    progress: Progress,
    cancel: threading.Event,
    run: RunBlock,
) -> None:
    def execute(part: Part, arrays: UnitArrays, todo: np.ndarray) -> None:
        work = UnitWork(part, (0,) * len(part.layout.shape), arrays, todo, recording(spec, part))
        run_units(
            [work] if work.runs else [],
            runs=work.runs,
            threads=threads,
            unit_done=lambda work: tell_failures(work.part, work.unit, work.arrays.failures, progress),
            progress=progress,
            cancel=cancel,
            run_seconds=guessed_run_seconds(spec.base, spec.design),
            run=run,
        )

    for part, arrays in results:
        whole = one_unit(part)
        if spec.until is None or part.name != CELLS:
            execute(whole, arrays, np.ones(arrays.status.shape, bool))
        else:
            _run_rounds(spec.until, whole, arrays, execute, progress)


def _run_rounds(until: str, part: Part, arrays: UnitArrays, execute: Any, progress: Progress) -> None:
    def run(open_cells: np.ndarray, first: int, last: int) -> None:
        todo = np.zeros(arrays.status.shape, bool)
        todo[open_cells, first:last] = True
        execute(part, arrays, todo)

    def read(metric: str, seeds: int) -> np.ndarray:
        values = arrays.metrics[metric][:, :seeds].astype(np.float64)
        return np.where(arrays.status[:, :seeds] == DONE, values, np.nan)

    run_rounds(parse_rule(until), part, run, read, progress)


def load_spec(path: str | Path, **overrides: Unpack[SpecSettings]) -> SweepSpec:
    """Read a sweep from a TOML file.

    Parameters
    ----------
    path : path
        The file.
    **overrides
        Settings of the base that take the place of the file's; what an axis sets in every cell is refused.

    Returns
    -------
    SweepSpec
        Its ``run(...)`` takes the options of :func:`run_sweep` from ``store`` on.

    Raises
    ------
    ConfigError
        Naming file, section and key of whatever is wrong.
    """
    file = path_of("path", path)
    spec = made_with(
        lambda changes: read_spec_file(file, base_changes=changes),
        {**overrides},
        lambda spec: tuple(spec.design.columns),
    )
    return spec.replace(runner=run_spec)
