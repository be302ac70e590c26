"""Plain settings of trainer and workload as runs show them, on top of those of :mod:`.general_settings`."""

from __future__ import annotations

from hypothesis import strategies as st

from .core_settings import Law, Pick, Plain, picker
from .general_settings import PAIRED, general_settings, longest_of


@st.composite
def trainer_settings(draw: st.DrawFn) -> Plain:
    """Draw plain settings of one small run with fetch, evaluation, spread, turns and a queue that holds."""
    pick = picker(draw)
    settings: Plain = draw(general_settings(level_3=pick(True, True, False)))
    step = pick(0.3, 1.0, 2.5) * _step_seconds(settings)
    if pick(False, True, True):
        settings["fetch_seconds"] = pick(step, step / 4, 0.5)
    if pick(False, True):
        settings["evaluation_every_updates"] = pick(1, 2, 3)
        settings["evaluation_seconds"] = pick(step, 2 * step, 0.25, 0.0)
        settings["evaluation_stops_generation"] = pick(False, True)
    if pick(False, False, True):
        settings["train_spread"] = pick(0.19, 1.0)
    if pick(False, True):
        settings |= {"generation_while_training": False, "prefetch_batches": 0}
        settings["train_slowdown_when_generating"] = 0.0
    if settings["response_length"][0] != "grouped" and pick(False, True):
        settings["response_length"] = _schedule(pick, settings)
    if settings["mode"] == "sequential":
        settings.pop("prefetch_batches", None)
    elif pick(False, True) and settings.get("admission") != "reserve":
        settings |= {"queue_overflow": "hold", "max_queue_groups": pick(1, 2, 4, 8)}
        batch = settings.get("batch_groups")
        if batch is not None and pick(False, True, True):
            settings["max_queue_groups"] = batch + pick(0, 0, 1, batch)
    return settings


def _schedule(pick: Pick, settings: Plain) -> tuple[object, ...]:
    """Let a law drift: from some versions on other laws hold, none longer where a cap was sized by it."""
    first = settings["response_length"]
    laws: tuple[Law, ...] = (
        first,
        ("fixed", 40),
        ("uniform", 16, 64),
        ("lognormal", 60, 0.5, 10, 200),
        PAIRED,
    )
    if settings.get("environment_seconds") is not None:
        laws = laws[:-1]
    if settings.get("admission") == "reserve":
        laws = tuple(law for law in laws if longest_of(law) <= longest_of(first))
    versions = pick((0,), (0, 1), (0, 2, 5), (0, 1, 2, 3))
    return ("schedule", tuple((version, pick(*laws) if version else first) for version in versions))


def _step_seconds(settings: Plain) -> float:
    tokens = settings.get("batch_tokens") or 300
    return round(
        min(20.0, settings["train_overhead_seconds"] + tokens / settings["train_tokens_per_second"]), 6
    )
