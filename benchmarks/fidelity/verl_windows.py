"""verl's runs by windows of 100 steps: lengths drift, so a mean over a run is no steady state.

Each window is fitted by itself, on the three rows that are fitted on anyway: the update from the two runs
that wait for nothing but the fetch, the longest rollout alone from the run that waits for a whole generation.
The first window starts from one model in every run, so its lengths are alike. How far lengths may be off in a
later one is what the fitted runs themselves show: the first window, made longer by the growth of each.
"""

from __future__ import annotations

from dataclasses import replace

from fidelity_parts import Calibrated, Ends, Family, Row, division
from verl_engine import AHEAD, FITTED, HALF, ON_POLICY, SHOWS, Calibration, Physics, Setup, window_seconds

PREDICTED = ("64:64, s 0.1", "64:64, s 0.3", "16:16, s 0.5")
OPEN = (
    "not fixed: the fitted runs' lengths have grown {} times since the first window, and no figure says whose"
)


class Windows:
    """The windows of the fitted rows, and what they make of the others."""

    def __init__(self, setup: Setup, calibration: Calibration) -> None:
        self.setup, self.calibration = setup, calibration
        self.rows = {row["id"]: row for row in setup.part["asynchronous"]}
        self.fits: dict[tuple[int, float], Physics] = {}
        self.first = self.fit(0)

    def seconds(self, name: str, window: int) -> float:
        """Return what the row's window took per step."""
        return window_seconds(self.rows[name], self.setup.part, window)

    def updates(self, name: str, window: int) -> float:
        """Return the updates of a row that waits for the fetch alone."""
        return self.seconds(name, window) - self.calibration.middle.fetch - self.calibration.middle.rest

    def fit(self, window: int, work: float | None = None) -> Physics:
        """Fit update and tail to the window of the three rows."""
        middle = self.calibration.middle
        work = middle.work if work is None else work
        if (window, work) not in self.fits:
            row, gpus = self.rows[ON_POLICY], self.rows[ON_POLICY]["gpus"]
            updates = division(
                [(self.rows[name]["gpus"], self.updates(name, window)) for name in (AHEAD, HALF)]
            )
            seconds = self.seconds(ON_POLICY, window)
            tail = seconds - (updates[0] + updates[1] / gpus + middle.fetch) / 4 - work / gpus
            physics = replace(middle, update=updates, work=work, tail=max(tail, 10.0))
            self.fits[window, work] = self.setup.with_tail(row, physics, seconds)
        return self.fits[window, work]

    def divides(self, window: int) -> bool:
        """Whether the run on more GPUs updates faster in this window; else their lengths differ."""
        return self.updates(AHEAD, window) < self.updates(HALF, window)

    def growth(self, window: int) -> dict[str, float]:
        """Return how many times as long each fitted run's lengths are as in the first window."""
        found = {name: self.updates(name, window) / self.updates(name, 0) for name in (AHEAD, HALF)}
        row, seconds = self.rows[ON_POLICY], self.seconds(ON_POLICY, window)
        factor, fixed = 1.0, (self.calibration.middle.fetch + self.calibration.middle.rest) / 4
        for _ in range(8):
            took = self.setup.predict(row, self.first.longer(factor))[0]
            if abs(took - seconds) <= SHOWS * seconds:
                break
            factor *= (seconds - fixed) / (took - fixed)
        return {ON_POLICY: factor, **found}

    def ends(self, name: str, window: int, growth: dict[str, float]) -> Ends:
        """Predict a row's window, with the ends of its inputs."""
        row = self.rows[name]
        by_input = {}
        if window:
            longer = (self.first.longer(factor) for factor in (min(growth.values()), max(growth.values())))
            low, high = (self.setup.predict(row, physics)[0] for physics in longer)
            by_input["lengths"] = (low, high)
            if not self.divides(window):
                return Ends((low + high) / 2, by_input)
        found = Ends(self.setup.predict(row, self.fit(window))[0], by_input)
        if found.open_inputs:
            return found
        works = (pair.work for pair in self.calibration.ends["work of generation"])
        low, high = (self.setup.predict(row, self.fit(window, work))[0] for work in works)
        return Ends(found.middle, {**by_input, "work of generation": (low, high)})


def add_windows(found: Family, setup: Setup, calibration: Calibration) -> None:
    """Add a row for each window of the predicted runs."""
    windows = Windows(setup, calibration)
    steps = setup.part["window_steps"]
    colocated = [row["id"] for row in setup.part["colocated"]]
    for window in range(4):
        span = f"steps {window * steps + 1}-{(window + 1) * steps}"
        growth = windows.growth(window) if window else {}
        for name in PREDICTED:
            ends = windows.ends(name, window, growth)
            found.rows.append(
                Row(
                    f"{name}, {span}",
                    "step",
                    "s",
                    ends.middle,
                    windows.seconds(name, window),
                    (*(f"{fitted}, {span}" for fitted in FITTED), *FITTED, *colocated),
                    ends.kind,
                    ends.low,
                    ends.high,
                    identified(ends, window, growth),
                    why(name, window, ends),
                )
            )
        if growth:
            text = ", ".join(f"{name} {factor:.2f}" for name, factor in growth.items())
            found.off.append(f"{span}: lengths have grown since the first window by {text}")
        if windows.divides(window):
            found.calibrated += fitted_numbers(windows.fit(window), span)


def fitted_numbers(physics: Physics, span: str) -> list[Calibrated]:
    """List what a window of the fitted rows gave."""
    both = f"{AHEAD} and {HALF}, {span}, less fetch and rest"
    return [
        Calibrated(f"{span}: update that GPUs do not divide", physics.update[0], "s", both),
        Calibrated(f"{span}: update that they do", physics.update[1], "GPU s", both),
        Calibrated(f"{span}: longest rollout alone", physics.tail, "s", f"{ON_POLICY}, {span}"),
    ]


def identified(ends: Ends, window: int, growth: dict[str, float]) -> str:
    """Say what fixes a window, or why nothing does."""
    if "lengths" in ends.open_inputs:
        low, high = min(growth.values()), max(growth.values())
        return OPEN.format(f"{low:.2f} to {high:.2f}")
    lengths = "one model starts every run" if window == 0 else "the fitted runs' lengths grew alike"
    if ends.open_inputs:
        return "not fixed: " + " and ".join(ends.open_inputs)
    return f"the same window of the fitted rows; {lengths}"


def why(name: str, window: int, ends: Ends) -> str:
    """Say where a window is off, as far as it is known."""
    if window == 1 and name.startswith("16:16"):
        low, high = ends.by_input["lengths"]
        return (
            f"with the first window's division of the update and grown lengths it would be {low:.0f} to "
            f"{high:.0f} s; this run's lengths grew less than those of any fitted one"
        )
    return ""
