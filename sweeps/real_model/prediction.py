"""What the loop in turn says about the asynchronous one, held against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..calibrate.calibrate import calibrate
from ..calibrate.calibration import Calibration
from ..calibrate.what_if import what_if
from .two_processes import LOOPS, loop_rows, step_log
from .workloads import Workload

PRESET, KNOB = "areal", "max_head_offpolicyness"


def calibrated(rows: Sequence[Mapping[str, Any]], workload: Workload) -> Calibration:
    """Fit a configuration to the loop in turn: AReaL's rules, batches of one group, one group at once.

    Parameters
    ----------
    rows : sequence of mapping
        Of both loops; those of the asynchronous one are not looked at.
    workload : Workload

    Returns
    -------
    Calibration
    """
    known: dict[str, Any] = {
        KNOB: 0,
        "max_concurrent_rollouts": 1,
        "group_size": 1,  # as the log has it: a group is decoded as one
        "batch_groups": 1,
        "rollout_workers": 1,
        "publication": "background",  # what is under way ends under the old weights
    }
    return calibrate(step_log(rows), preset=PRESET, held=0.0, seed=workload.seed, **known)


def prediction_rows(
    calibration: Calibration, rows: Sequence[Mapping[str, Any]], workload: Workload
) -> list[dict[str, Any]]:
    """Predict both loops from the one in turn and put what was measured beside it.

    Parameters
    ----------
    calibration : Calibration
        Of :func:`calibrated`.
    rows : sequence of mapping
        Of both loops.
    workload : Workload

    Returns
    -------
    list of dict
        A row a loop: ``predicted``, ``low``, ``high``, ``measured``, ``measured_half`` (s a step), ``error``
        (predicted over measured, less 1), ``inside`` (whether the intervals meet), waits and lags of both.
    """
    asked = {f"preset.{KNOB}": [0, workload.ahead]}
    told = {change.settings[f"preset.{KNOB}"]: change for change in what_if(calibration, asked).changes}
    found = []
    for measured, ahead, name in zip(loop_rows(rows), (0, workload.ahead), LOOPS):
        change = told[ahead]
        low, high = change.step.low, change.step.high
        seconds, half = measured["step_seconds"], measured["step_half"]
        found.append(
            {
                "loop": name,
                "predicted": change.step.value,
                "low": low,
                "high": high,
                "measured": seconds,
                "measured_half": half,
                "error": change.step.value / seconds - 1,
                "inside": low <= seconds + half and seconds - half <= high,
                "predicted_wait": change.wait_share.value,
                "measured_wait": measured["wait_seconds"] / seconds,
                "predicted_lag": change.lag.value,
                "measured_lag": measured["lag"],
            }
        )
    return found
