"""One transfer, its parts and its bound; the pause of a publication; the cadence; sparse payloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import agrees, cases

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    bf16_update_visible,
    bucket_count,
    delta_payload_bytes,
    gigabits_to_gigabytes_per_second,
    publication_report,
    synchronization_schedule,
    synchronization_transfer_time,
    transfer_report,
)

payloads = st.floats(0, 1e13)
rates = st.floats(1e-3, 1e4)
shares = st.floats(0.01, 1)
waits = st.floats(0, 1e3)


def test_every_stored_case_is_claimed_by_a_test():
    claimed = {
        "synchronization_transfer_time",
        "synchronization_schedule",
        "delta_payload_bytes",
        "bf16_update_visible",
        # in test_collectives.py
        "broadcast_time",
        "ring_allreduce_time",
        "unicast_fanout_time",
        # in test_weight_sync_table.py
        "published_sync_measurement",
    }

    assert {case["function"] for case in cases("sync")} == claimed


@pytest.mark.parametrize("case", cases("sync", "synchronization_transfer_time"), ids=lambda case: case["id"])
def test_transfer_times_agree_with_the_stored_cases(case):
    inputs = dict(case["inputs"])
    payload, rate = inputs.pop("payload_bytes"), inputs.pop("bandwidth_gb_per_second")
    if isinstance(case["expected"], dict):
        with pytest.raises(ValueError, match=r"^payload_bytes: must be at least 0 \(got -1.0\)"):
            synchronization_transfer_time(payload, rate, **inputs)
        return

    assert agrees(synchronization_transfer_time(payload, rate, **inputs), case)


@pytest.mark.parametrize("case", cases("sync", "synchronization_schedule"), ids=lambda case: case["id"])
def test_schedules_agree_with_the_stored_cases_and_their_alternatives(case):
    schedule = synchronization_schedule(**case["inputs"])
    other = case.get("alternatives", {})

    assert all(agrees(getattr(schedule, field), case, value) for field, value in case["expected"].items())
    if "mean_lag" in other:
        assert agrees(schedule.mean_lag_after_update, case, other["mean_lag"])
        assert schedule.max_lag_after_update == other["max_lag"]
    if "synchronization_count" in other:
        forced = synchronization_schedule(**case["inputs"], publish_last=True)
        assert forced.synchronization_count == other["synchronization_count"]


def test_sparse_payload_cases_agree():
    (payload,) = cases("sync", "delta_payload_bytes")
    (visible,) = cases("sync", "bf16_update_visible")

    assert agrees(delta_payload_bytes(**payload["inputs"]), payload)
    assert bf16_update_visible(**visible["inputs"]) is visible["expected"]


def test_the_course_notebooks_calls_work_as_written():
    full, adapter = 7_000_000_000 * 2, 70_000_000 * 2
    times = [
        synchronization_transfer_time(size, 25.0, setup_seconds=0.15, efficiency=0.80)
        for size in (full, adapter)
    ]
    schedules = [synchronization_schedule(sync_every=every, updates=16) for every in (1, 2, 4, 8)]

    assert times == pytest.approx([0.85, 0.157], rel=1e-12)
    assert [s.synchronization_count for s in schedules] == [16, 8, 4, 2]
    assert [s.mean_lag for s in schedules] == [0.0, 0.5, 1.5, 3.5]
    assert [s.max_lag for s in schedules] == [0, 1, 3, 7]


# Bits taken for bytes, and two minutes of per-tensor calls that no bandwidth explains:
# OpenRLHF/OpenRLHF#647, sgl-project/sglang#2708, allenai/open-instruct#1535.
@pytest.mark.parametrize(
    ("payload", "gigabits", "calls", "overhead", "expected", "bound"),
    [
        (70_000_000_000 * 2, 400, 0, 0.0, 2.8, 2.8),
        (25_000_000_000, 400, 200, 0.6, 120.5, 0.5),
        (25_000_000_000, 400, 1, 0.6, 1.1, 0.5),
    ],
)
def test_bits_bytes_and_calls_are_counted_apart(payload, gigabits, calls, overhead, expected, bound):
    report = transfer_report(
        payload, gigabits_to_gigabytes_per_second(gigabits), calls=calls, seconds_per_call=overhead
    )

    assert report.total_seconds == pytest.approx(expected, rel=1e-9)
    assert report.lower_bound_seconds == pytest.approx(bound, rel=1e-9)


@given(payload=payloads, rate=rates, efficiency=shares, setup=waits, calls=st.integers(0, 500), each=waits)
def test_a_transfer_is_the_sum_of_its_parts_and_never_beats_the_line(
    payload, rate, efficiency, setup, calls, each
):
    report = transfer_report(
        payload, rate, setup_seconds=setup, efficiency=efficiency, calls=calls, seconds_per_call=each
    )

    assert report.total_seconds == report.setup_seconds + report.call_seconds + report.wire_seconds
    assert report.total_seconds >= report.lower_bound_seconds
    assert report.times_lower_bound >= 1
    assert report.effective_gigabytes_per_second <= rate * (1 + 1e-12)


@given(payload=payloads, rate=rates, efficiency=shares, more=st.floats(0, 1e12))
def test_more_bytes_take_longer_and_a_faster_link_shorter(payload, rate, efficiency, more):
    time = synchronization_transfer_time(payload, rate, efficiency=efficiency)

    assert synchronization_transfer_time(payload + more, rate, efficiency=efficiency) >= time
    assert synchronization_transfer_time(payload, 2 * rate, efficiency=efficiency) == pytest.approx(time / 2)
    assert synchronization_transfer_time(payload, rate) <= time


def test_an_empty_payload_costs_its_overheads_only():
    free, priced = transfer_report(0, 25.0), transfer_report(0, 25.0, setup_seconds=0.5)

    assert (free.total_seconds, free.times_lower_bound, free.effective_gigabytes_per_second) == (
        0.0,
        1.0,
        0.0,
    )
    assert (priced.total_seconds, priced.times_lower_bound) == (0.5, float("inf"))


def test_transfers_broadcast_like_their_scalars():
    sizes, rates_, efficiencies = np.array([[0.0], [7e9], [61e9]]), [25.0, 50.0], 0.8
    report = transfer_report(
        sizes, rates_, efficiency=efficiencies, calls=[[1], [2], [3]], seconds_per_call=0.1
    )

    assert report.total_seconds.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            one = transfer_report(sizes[i, 0], rates_[j], efficiency=0.8, calls=i + 1, seconds_per_call=0.1)
            assert report.total_seconds[i, j] == one.total_seconds
            assert report.times_lower_bound[i, j] == one.times_lower_bound


@given(payload=st.integers(0, 10**13), bucket=st.integers(1, 10**10))
def test_buckets_hold_the_payload_and_none_is_idle(payload, bucket):
    count = bucket_count(payload, bucket)

    assert (count - 1) * bucket < payload <= count * bucket or payload == count == 0


@given(transfer=waits, prepare=waits, drain=waits, install=waits, share=st.floats(0, 1))
def test_a_publication_is_pause_plus_background(transfer, prepare, drain, install, share):
    report = publication_report(
        transfer,
        prepare_seconds=prepare,
        drain_seconds=drain,
        install_seconds=install,
        background_fraction=share,
        period_seconds=10.0,
    )

    assert report.end_to_end_seconds == pytest.approx(prepare + drain + transfer + install, abs=1e-9)
    assert report.pause_seconds + report.background_seconds == report.end_to_end_seconds
    assert drain + install <= report.pause_seconds <= drain + install + transfer + 1e-9
    assert 0 <= report.pause_fraction <= 1
    assert report.pause_fraction == report.pause_seconds / max(10.0, report.end_to_end_seconds)


def test_a_background_upload_pauses_for_the_installation_only():
    blocking = publication_report(8.3, install_seconds=1.1)
    staged = publication_report(8.3, install_seconds=1.1, background_fraction=1.0)

    assert blocking.pause_seconds == blocking.end_to_end_seconds == pytest.approx(9.4)
    assert staged.pause_seconds == 1.1
    assert staged.end_to_end_seconds == pytest.approx(9.4)
    assert staged.pause_fraction is None
    assert publication_report([1.0, 2.0], period_seconds=4.0).pause_fraction.tolist() == [0.25, 0.5]


@given(every=st.integers(1, 40), updates=st.integers(0, 200), last=st.booleans())
def test_a_schedule_is_what_counting_update_by_update_gives(every, updates, last):
    schedule = synchronization_schedule(every, updates, publish_last=last, pause_seconds=2.0)
    published = count = 0
    before, after = [], []
    for update in range(1, updates + 1):
        before.append(update - 1 - published)
        after.append(update - published)
        if update % every == 0 or (last and update == updates):
            published, count = update, count + 1

    assert schedule.synchronization_count == count
    assert schedule.lags().tolist() == before
    assert schedule.mean_lag == (pytest.approx(np.mean(before), rel=1e-15) if before else 0.0)
    assert schedule.mean_lag_after_update == (pytest.approx(np.mean(after), rel=1e-15) if after else 0.0)
    assert (schedule.max_lag, schedule.max_lag_after_update) == (
        max(before, default=0),
        max(after, default=0),
    )
    assert schedule.unpublished_updates == updates - published
    assert schedule.total_pause_seconds == 2.0 * count


@given(every=st.integers(1, 1000), updates=st.integers(1, 10_000))
def test_publishing_less_often_saves_publications_and_ages_the_policy(every, updates):
    schedule = synchronization_schedule([every, every + 1], updates)

    assert schedule.synchronization_count[1] <= schedule.synchronization_count[0]
    assert schedule.max_lag[0] <= schedule.max_lag[1]
    assert schedule.max_lag_after_update[0] == min(every, updates)


def test_long_schedules_do_not_overflow():
    largest = 2**31 - 1

    assert synchronization_schedule(largest, largest).mean_lag == (largest - 1) / 2
    assert synchronization_schedule(2, largest).mean_lag == pytest.approx(0.5)


@given(fraction=st.floats(0, 1), parameters=st.integers(0, 10**12))
def test_a_sparse_payload_grows_with_what_changed(fraction, parameters):
    payload = delta_payload_bytes(parameters, fraction)
    bitmap = delta_payload_bytes(parameters, fraction, encoding="bitmap")

    assert payload == pytest.approx(6 * fraction * parameters)
    assert bitmap - parameters / 8 == pytest.approx(2 * fraction * parameters, abs=1e-3)
    assert delta_payload_bytes(parameters, min(1.0, 2 * fraction)) >= payload


def test_a_delta_stops_to_pay_where_the_docstring_says():
    parameters, full = 3 * 2**20, 2 * 3 * 2**20

    assert delta_payload_bytes(parameters, 1 / 3) == pytest.approx(full)
    assert delta_payload_bytes(parameters, 1 / 32) == delta_payload_bytes(
        parameters, 1 / 32, encoding="bitmap"
    )


@given(weight=st.floats(-1e4, 1e4), update=st.floats(-10, 10))
def test_visibility_is_a_change_of_the_rounded_copy(weight, update):
    def rounded(number):
        # The oracle walks the bits: float64 to bfloat16 by keeping 8 significant binary digits, half to even.
        if number == 0:
            return 0.0
        quantum = 2.0 ** (max(np.frexp(number)[1], -125) - 8)
        whole, rest = divmod(abs(number) / quantum, 1.0)
        whole += rest > 0.5 or (rest == 0.5 and whole % 2 == 1)
        return np.copysign(whole * quantum, number)

    assert bf16_update_visible(weight, update) == (rounded(weight + update) != rounded(weight))


@given(weight=st.floats(1e-3, 1e3), sign=st.sampled_from([-1, 1]))
def test_the_rule_of_thumb_brackets_visibility(weight, sign):
    # Half a spacing is at most |w| / 256 upwards and, below a power of two, at least |w| / 1024 downwards.
    bits = np.float32(weight).view(np.uint32) & np.uint32(0xFFFF0000)
    exact = float(bits.view(np.float32))

    assert bf16_update_visible(exact, sign * exact / 127)
    assert not bf16_update_visible(exact, sign * exact / 1025)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: synchronization_transfer_time(1e9, 0.0),
            "gigabytes_per_second: must be greater than 0 (got 0.0). "
            "Give the link's rate in decimal GB/s; a rate in Gb/s is divided by 8.",
        ),
        (
            lambda: synchronization_transfer_time(1e9, 25.0, efficiency=80),
            "efficiency: must be at most 1 (got 80.0). "
            "Give the achieved share of the link's rate, above 0 and at most 1.",
        ),
        (
            lambda: transfer_report(1e9, 25.0, calls=1.5),
            "calls: must be a whole number (got 1.5). Give a whole number.",
        ),
        (
            lambda: synchronization_schedule(0, 16),
            "sync_every: must be at least 1 (got 0). Give a whole number in that range.",
        ),
        (
            lambda: synchronization_schedule(1, 16, publish_last=1),
            "publish_last: must be a bool (got 1). Give True or False.",
        ),
        (
            lambda: synchronization_schedule([1, 2], 16).lags(),
            "sync_every: must be one number (got array([1, 2])). Ask one schedule at a time.",
        ),
        (
            lambda: delta_payload_bytes(10, 0.1, encoding="huffman"),
            "encoding: must name a known encoding (got 'huffman'). Choose one of index, bitmap.",
        ),
        (
            lambda: delta_payload_bytes(10, 1.1),
            "changed_fraction: must be at most 1 (got 1.1). Give a number in that range.",
        ),
        (
            lambda: publication_report(1.0, background_fraction=2),
            "background_fraction: must be at most 1 (got 2.0). Give a number in that range.",
        ),
        (
            lambda: bf16_update_visible("0.5", 0.1),
            "weight: must be a number (got '0.5'). Give a number, or an array of numbers.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
