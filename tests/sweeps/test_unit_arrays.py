"""What a unit's runs are held in: few bytes, and every value that was put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lagsweep as ls
from lagsweep.kernels.pipeline.metrics import LAG_BINS
from lagsweep.sweeps.execute.plan import plan_parts
from lagsweep.sweeps.execute.unit_arrays import all_lag_bins, new_arrays, with_room
from lagsweep.sweeps.results.lag_array import lag_array
from lagsweep.sweeps.runs.many import simulate_batch
from lagsweep.sweeps.spec.make import make_spec

COUNTS = st.lists(
    st.lists(st.sampled_from([0, 1, 7, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**40]), min_size=0, max_size=6),
    min_size=1,
    max_size=5,
)


BASE = ls.PipelineConfig(rollout_workers=4, batch_tokens=2_000, duration_seconds=120.0)
AXES = {"max_lag": [0, 3, 8], "queue_cap": [4_000, 9_000]}


@given(COUNTS)
def test_counts_by_lag_are_held_in_the_smallest_integers_that_fit(rows: list[list[int]]) -> None:
    held = np.zeros((2, 0), np.uint16)
    largest = 0
    for row in rows:
        more = np.array([row, row], np.int64).reshape(2, len(row))
        before = all_lag_bins(held)
        held = with_room(held, more)
        assert (all_lag_bins(held) == before).all()  # what was in is still in
        held[..., : len(row)] = more
        assert all_lag_bins(held)[:, : len(row)].tolist() == more.tolist()
        largest = max(largest, *row, 0)
    assert held.shape[-1] == max(map(len, rows))
    assert held.dtype == (np.uint16 if largest < 2**16 else np.uint32 if largest < 2**32 else np.int64)


def test_a_level_1_run_is_held_in_at_most_260_bytes() -> None:
    part = plan_parts(make_spec(BASE, AXES, seeds=5))[0]
    arrays = new_arrays(part)
    cells = np.arange(part.design.size)
    result = simulate_batch(part.configs(cells), part.seeds)
    arrays.put(cells, np.arange(len(part.seeds)), result.metrics, result.lag_counts, result.status)
    held = [*arrays.metrics.values(), arrays.lag_counts, arrays.status]
    runs = arrays.status.size
    assert sum(array.nbytes for array in held) / runs <= 260
    assert arrays.lag_counts.shape == (*arrays.status.shape, 9)  # lags 0 to 8, the largest limit
    assert (arrays.lag_counts.sum(axis=-1) == arrays.metrics["trained_rollouts"]).all()


def test_the_dataset_has_every_bin_as_int64_in_memory_and_in_a_store(tmp_path) -> None:
    held = ls.run_sweep(BASE, AXES, seeds=5, progress=False)
    stored = ls.run_sweep(BASE, AXES, seeds=5, store=tmp_path / "store", progress=False)
    counts = held["lag_counts"]
    assert counts.dtype == np.int64
    assert counts.sizes["lag"] == LAG_BINS
    assert (counts.values == stored["lag_counts"].values).all()
    assert int(counts.sum()) == int(held["trained_rollouts"].sum())
    copied = held.copy(deep=True).load()
    assert (copied["lag_counts"] == stored["lag_counts"]).all()


@pytest.mark.parametrize(
    "at",
    [
        {},
        {"seed": 1},
        {"max_lag": 0, "lag": 2},
        {"max_lag": [2, 0], "seed": slice(1, None, 2)},
        {"lag": slice(7, 12)},
        {"lag": -1},
        {"queue_cap": -1, "seed": [3, 3, 0]},
    ],
)
def test_counts_are_read_by_any_index_as_a_plain_array_is(at: dict[str, object]) -> None:
    xarray = pytest.importorskip("xarray")
    dims = ("max_lag", "queue_cap", "seed", "lag")
    held = np.arange(3 * 2 * 5 * 9).reshape(3, 2, 5, 9).astype(np.uint16)
    lazy = xarray.Variable(dims, lag_array(held))
    plain = xarray.Variable(dims, all_lag_bins(held))
    assert lazy.isel(at).equals(plain.isel(at))


def test_a_value_written_into_the_dataset_stays_there_and_changes_no_other() -> None:
    held = ls.run_sweep(BASE, {"max_lag": [0, 3]}, seeds=2, progress=False)
    before = held["lag_counts"].values.copy()
    held["lag_counts"][0, 0, 64] = 5
    after = held["lag_counts"].values
    assert after[0, 0, 64] == 5
    assert (after != before).sum() == 1
