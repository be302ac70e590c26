"""verl's fully asynchronous trainer: step and trainer's wait of the rows that are not fitted on."""

from __future__ import annotations

from typing import Any

from fidelity_parts import Calibrated, Ends, Family, Row, Verdict, division
from verl_engine import (
    FITTED,
    RESUME_SECONDS,
    SHAPE,
    Calibration,
    Setup,
    calibrate,
    window_seconds,
)
from verl_windows import add_windows

MANY, FEW = "64:64, require_batches 1", "64:64, require_batches 4"
BETWEEN = "64:64, require_batches 2"
COLOCATED = {"64:64": "colocated 128", "32:32": "colocated 64", "16:16": "colocated 32"}
IDENTIFIED = {
    "64:64, s 0.1": "lies between two fitted rows on the same GPUs; work and tail divide what s 0 took",
    "64:64, s 0.3": "the trainer sets the pace: update and fetch",
    "16:16, s 0.5": "the trainer sets the pace: the update as c + d / GPUs from 64 and 32, and the fetch",
    BETWEEN: "the trainer sets the pace: the update between those of 16 and 4 trainings, and the fetch",
}
WHY = {
    "16:16, s 0.5": "its lengths hardly drift, those of the fitted rows do; the division of their updates "
    "takes that in, so part of the agreement is luck. Its own update (313.81 s) is longer than its step",
    "64:64, s 0.1": "lengths drift differently in each run: see the windows",
    "64:64, s 0.3": "the same",
}


def between_updates(rows: dict[str, dict[str, Any]], setup: Setup) -> tuple[float, tuple[float, float]]:
    """Return the updates of require_batches 2, and ends: a line in the number of trainings, or its log."""
    many, few = rows[MANY]["update"], rows[FEW]["update"]
    counts = [setup.part["prompts"] / 32 / rows[name]["require_batches"] for name in (MANY, BETWEEN, FEW)]
    line = few + (many - few) * (counts[1] - counts[2]) / (counts[0] - counts[2])
    return line, (line, (many * few) ** 0.5)


def ends_of(setup: Setup, calibration: Calibration, row: dict[str, Any]) -> tuple[Ends, float]:
    """Simulate a row in the middle and at the ends of its inputs; gives steps, and the middle wait."""
    rows = {row["id"]: row for row in setup.part["asynchronous"]}
    ends = dict(calibration.ends)
    updates = None
    by_input = {}
    if row["id"] == BETWEEN:
        del ends["updates"]
        updates, pair = between_updates(rows, setup)
        low, high = (setup.predict(row, calibration.middle, each)[0] for each in pair)
        by_input["updates"] = (low, high)
    for name, (first, second) in ends.items():
        by_input[name] = (
            setup.predict(row, first, updates)[0],
            setup.predict(row, second, updates)[0],
        )
    step, wait = setup.predict(row, calibration.middle, updates)
    return Ends(step, by_input), wait


def calibrated(calibration: Calibration) -> list[Calibrated]:
    """List the numbers of the calibration with the rows they come from."""
    middle, ends = calibration.middle, calibration.ends
    low, high = (pair.work for pair in ends["work of generation"])
    fitted = ", ".join(FITTED)
    return [
        Calibrated("fetch of a window", middle.fetch, "s", "the waits of " + ", ".join(FITTED[1:])),
        Calibrated("rest of a step", middle.rest, "s", f"step less wait less update of {fitted}"),
        Calibrated("update that GPUs do not divide", middle.update[0], "s", f"updates of {fitted}"),
        Calibrated("update that they do", middle.update[1], "GPU s", f"updates of {fitted}"),
        Calibrated(
            "work of a generation",
            middle.work,
            "GPU s",
            f"the first window of {', '.join(COLOCATED.values())}; {low:,.0f} to {high:,.0f}: a standard "
            "error, and no more than lets 32:32 wait for its fetch alone",
        ),
        Calibrated("longest rollout alone", middle.tail, "s", f"the step of {FITTED[0]}"),
    ]


def explained(part: dict[str, Any]) -> list[str]:
    """Say what the windows say of figures that looked odd."""
    rows = {row["id"]: row for row in (*part["colocated"], *part["asynchronous"])}

    def taken(name: str, window: int) -> float:
        return window_seconds(rows[name], part, window)

    small, middle, large = COLOCATED["16:16"], COLOCATED["32:32"], COLOCATED["64:64"]
    fixed, divided = division([(rows[name]["gpus"], taken(name, 0)) for name in (small, middle)])
    gains = [
        (taken("64:64, s 0", w) - taken("64:64, s 0.1", w))
        / (taken("64:64, s 0", w) - taken("64:64, s 0.5", w))
        for w in (0, 1)
    ]
    return [
        f"{small} looked slow because its lengths grew: {taken(small, 0):,.0f} s a step in its first window, "
        f"{taken(small, 3):,.0f} s in its last. At the first window's lengths {small} and {middle} give "
        f"{fixed + divided / rows[large]['gpus']:.0f} s for {large}; measured {taken(large, 0):.0f} s",
        "that most of the gain comes with the first tenth of staleness is a drift of lengths: where they are "
        f"alike, in the first and second window, it gives {gains[0]:.0%} and {gains[1]:.0%} of a half's",
    ]


def add_row(found: Family, setup: Setup, calibration: Calibration, row: dict[str, Any]) -> None:
    """Add the step and the wait of a row, and the verdict beside its colocated run."""
    name, colocated = row["id"], {other["id"]: other for other in setup.part["colocated"]}
    ends, wait = ends_of(setup, calibration, row)
    shared = ((*FITTED, *colocated, *((MANY, FEW) if name == BETWEEN else ())), ends.kind)
    step = ("step", "s", ends.middle, row["step"], *shared, ends.low, ends.high)
    found.rows += [
        Row(name, *step, IDENTIFIED[name], WHY.get(name, "")),
        Row(
            name,
            "trainer's wait",
            "share",
            wait / ends.middle,
            row["wait"] / row["step"],
            *shared,
            identified="as its step",
        ),
    ]
    beside = colocated[COLOCATED[name.split(",")[0]]]
    title = f"{name} beside {beside['id']}"
    found.verdicts.append(Verdict(title, beside["step"], ends.low, ends.high, row["step"]))


def family(data: dict[str, Any]) -> Family:
    """Predict every asynchronous row whose physical inputs other rows give, whole and by windows."""
    part = data["verl_fully_async"]
    setup = Setup(part)
    calibration = calibrate(setup)
    found = Family(
        "verl fully_async: one step is one publication, 512 prompts",
        part["source"],
        part["setting"],
        "preset verl_fully_async with a fetch; every rollout of the budget runs at once on engines whose "
        "speed falls with their load",
        calibrated=calibrated(calibration),
        assumed=[
            f"the shape of lengths: log spread {setup.between:.2f} between prompts and {setup.within:.2f} "
            f"within one, as in the shipped law {SHAPE} (another model, another system); the cap is the "
            "longest of a batch",
            f"an interrupted request waits {RESUME_SECONDS:g} s and is not prefilled again",
            "engines enough for the whole budget (16 prompts for each)",
            "of a colocated run's first window generation has the share that it has of the run",
        ],
        off=explained(part),
    )
    for row in part["asynchronous"]:
        name = row["id"]
        if name in FITTED or name in (MANY, FEW):
            reason = "fitted on" if name in FITTED else "an input: an end of what gives the time of an update"
            found.left_out.append((name, reason))
            continue
        add_row(found, setup, calibration, row)
    add_windows(found, setup, calibration)
    found.left_out += [
        (f"{other['id']}, step", "an input: its first window is where generation's work comes from")
        for other in part["colocated"]
    ]
    return found
