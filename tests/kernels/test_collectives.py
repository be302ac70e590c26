"""The same weights to many receivers, and shards from many to many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import agrees, cases

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    best_chain_chunks,
    binomial_tree_seconds,
    fan_out_seconds,
    node_fan_out_seconds,
    pipelined_chain_seconds,
    point_to_point_seconds,
    ring_all_reduce_seconds,
    sharded_point_to_point_seconds,
    transfer_report,
)

FORMULAS = {"binomial tree, whole message": binomial_tree_seconds, "pipelined chain": pipelined_chain_seconds}
receivers = st.integers(1, 5000)
sizes = st.just(0.0) | st.floats(1e-3, 1e13)  # a part of a byte; below that, seconds lose their last digits


@pytest.mark.parametrize("case", cases("sync", "broadcast_time"), ids=lambda case: case["id"])
def test_broadcasts_agree_with_the_stored_cases(case):
    inputs = dict(case["inputs"])
    algorithm = inputs.pop("algorithm")
    chunks = {"chunks": inputs["chunks"]} if "chunks" in inputs else {}
    formula = FORMULAS[algorithm.removesuffix(", limit")]
    rate = inputs["bandwidth_bytes_per_second"] / 1e9

    assert agrees(formula(inputs["payload_bytes"], rate, inputs["receivers"], **chunks), case)


def test_rings_and_fan_outs_agree_with_the_stored_cases():
    for function, formula, members in (
        ("ring_allreduce_time", ring_all_reduce_seconds, "ranks"),
        ("unicast_fanout_time", fan_out_seconds, "receivers"),
    ):
        for case in cases("sync", function):
            inputs = case["inputs"]
            rate = inputs["bandwidth_bytes_per_second"] / 1e9
            assert agrees(formula(inputs["payload_bytes"], rate, inputs[members]), case), case["id"]


def rounds_by_doubling(n):
    owners, rounds = 1, 0
    while owners < n + 1:
        owners, rounds = 2 * owners, rounds + 1
    return rounds


@given(n=st.integers(1, 2**40))
def test_a_tree_takes_as_many_rounds_as_doubling_the_owners(n):
    assert binomial_tree_seconds(1e9, 1.0, n) == rounds_by_doubling(n)
    assert binomial_tree_seconds(0, 1.0, n, seconds_per_step=0.5) == 0.5 * rounds_by_doubling(n)


def chain_step_by_step(n, k):
    """Pass chunks along a chain, one per link and step, until the last receiver has all of them."""
    held = [k] + [0] * n
    steps = 0
    while held[-1] < k:
        moves = [held[i] > held[i + 1] for i in range(n)]
        for i, moved in enumerate(moves):
            held[i + 1] += moved
        steps += 1
    return steps


@given(n=st.integers(1, 12), k=st.integers(1, 12))
def test_a_chain_takes_as_many_steps_as_passing_the_chunks_on(n, k):
    assert pipelined_chain_seconds(k * 1e9, 1.0, n, chunks=k) == pytest.approx(chain_step_by_step(n, k))


@given(size=st.floats(1e6, 1e12), n=st.integers(1, 200), step=st.floats(1e-4, 1e-1))
def test_the_best_number_of_chunks_beats_its_neighbours_and_a_scan(size, n, step):
    best = best_chain_chunks(size, 50.0, n, step)
    scan = np.unique(
        np.concatenate([np.geomspace(1, 10 * best + 10, 200).astype(int), [best + 1, max(best - 1, 1)]])
    )
    times = pipelined_chain_seconds(size, 50.0, n, chunks=scan, seconds_per_step=step)

    assert pipelined_chain_seconds(size, 50.0, n, chunks=best, seconds_per_step=step) <= times.min() * (
        1 + 1e-12
    )


@given(size=sizes, rate=st.floats(0.1, 1000), n=receivers, chunks=st.integers(1, 1000))
def test_no_broadcast_beats_the_line_and_none_is_worse_than_copying(size, rate, n, chunks):
    bound = transfer_report(size, rate).lower_bound_seconds * (1 - 1e-12)
    copying = fan_out_seconds(size, rate, n) * (1 + 1e-12)
    limit = pipelined_chain_seconds(size, rate, n)

    assert (
        bound
        <= limit
        <= pipelined_chain_seconds(size, rate, n, chunks=chunks) * (1 + 1e-12)
        <= copying * (1 + 1e-12)
    )
    assert bound <= binomial_tree_seconds(size, rate, n) <= copying


@given(size=sizes, n=st.integers(1, 5000))
def test_a_ring_stays_below_two_payloads_and_grows_with_its_members(size, n):
    small, large = ring_all_reduce_seconds(size, 50.0, [n, n + 1])

    assert 0 <= small <= large <= 2 * size / 50e9


@given(n=receivers, size=sizes)
def test_a_larger_group_never_gets_its_weights_earlier(n, size):
    for formula in (fan_out_seconds, binomial_tree_seconds):
        assert formula(size, 50.0, n) <= formula(size, 50.0, n + 1)
    assert pipelined_chain_seconds(size, 50.0, n, chunks=64) <= pipelined_chain_seconds(
        size, 50.0, n + 1, chunks=64
    )


@given(
    size=st.floats(1e6, 1e12),
    senders=st.integers(1, 6),
    per_copy=st.integers(1, 4),
    copies=st.integers(1, 4),
    out_rate=st.floats(1, 100),
    in_rate=st.floats(1, 100),
)
def test_even_shards_are_the_table_of_pairs_with_equal_entries(
    size, senders, per_copy, copies, out_rate, in_rate
):
    ranks = per_copy * copies
    table = np.full((senders, ranks), copies * size / (senders * ranks))
    by_pair = point_to_point_seconds(
        table, sender_gigabytes_per_second=out_rate, receiver_gigabytes_per_second=in_rate
    )
    even = sharded_point_to_point_seconds(
        size,
        senders=senders,
        receivers=ranks,
        copies=copies,
        sender_gigabytes_per_second=out_rate,
        receiver_gigabytes_per_second=in_rate,
    )

    assert table.sum() == pytest.approx(copies * size)  # every copy arrives whole
    assert by_pair == pytest.approx(even, rel=1e-12)


pair_tables = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.floats(0, 1e11), min_size=columns, max_size=columns), min_size=1, max_size=4
    )
)


@given(table=pair_tables)
def test_the_busiest_rank_decides_and_constant_rates_reach_it(table):
    pairs = np.array(table)
    time = point_to_point_seconds(pairs, sender_gigabytes_per_second=10.0, receiver_gigabytes_per_second=5.0)
    rates = pairs / max(time, 1e-300)

    assert time == pytest.approx(max(pairs.sum(axis=1).max() / 10e9, pairs.sum(axis=0).max() / 5e9))
    assert (rates.sum(axis=1) <= 10e9 * (1 + 1e-9)).all()
    assert (rates.sum(axis=0) <= 5e9 * (1 + 1e-9)).all()


def test_published_shards_arrive_at_the_published_time():
    # PrimeIntellect-ai/prime-rl#3341: 82.501 GB per inference GPU at 44.26 GB/s each: 1.864 s at the median.
    time = sharded_point_to_point_seconds(
        82.501e9 * 32,
        senders=64,
        receivers=32,
        sender_gigabytes_per_second=44.26,
        receiver_gigabytes_per_second=44.26,
    )

    assert round(time, 3) == 1.864


@given(size=sizes, links=st.integers(1, 16), outer=st.floats(1, 100), inner=st.floats(1, 1000))
def test_passing_chunks_on_saves_at_most_the_shorter_leg(size, links, outer, inner):
    arguments = {
        "links_per_node": links,
        "link_gigabytes_per_second": outer,
        "inner_gigabytes_per_second": inner,
    }
    staged = node_fan_out_seconds(size, **arguments)
    streamed = node_fan_out_seconds(size, **arguments, staged=False)

    assert streamed <= staged <= 2 * streamed
    assert node_fan_out_seconds(size, **{**arguments, "links_per_node": links + 1}) <= staged


def test_formulas_broadcast_like_their_scalars():
    size, rate, n = [[1e9], [61e9]], [25.0, 50.0, 100.0], 8
    for formula in (fan_out_seconds, binomial_tree_seconds, ring_all_reduce_seconds, pipelined_chain_seconds):
        table = formula(size, rate, n)
        assert table.shape == (2, 3)
        assert table[1, 2] == formula(61e9, 100.0, 8)
    assert best_chain_chunks(size, rate, n, 1e-3).dtype == np.int64
    assert point_to_point_seconds(
        np.ones((5, 2, 3)), sender_gigabytes_per_second=1.0, receiver_gigabytes_per_second=[1.0, 2.0, 3.0]
    ).shape == (5,)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: fan_out_seconds(1e9, 50.0, 0),
            "receivers: must be at least 1 (got 0). Give a whole number in that range.",
        ),
        (
            lambda: pipelined_chain_seconds(1e9, 50.0, 4, seconds_per_step=0.1),
            "chunks: must be given when a step has a fixed cost (got None). "
            "Give the number of chunks, for example best_chain_chunks(...).",
        ),
        (
            lambda: point_to_point_seconds(
                [1.0, 2.0], sender_gigabytes_per_second=1.0, receiver_gigabytes_per_second=1.0
            ),
            "bytes_by_pair: must be a table of at least 1 by 1 (got (2,)). "
            "Give one row per sender and one column per receiver.",
        ),
        (
            lambda: sharded_point_to_point_seconds(
                1e9,
                senders=1,
                receivers=1,
                sender_gigabytes_per_second=-1.0,
                receiver_gigabytes_per_second=1.0,
            ),
            "sender_gigabytes_per_second: must be greater than 0 (got -1.0). "
            "Give the link's rate in decimal GB/s; a rate in Gb/s is divided by 8.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
