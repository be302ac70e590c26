"""The lab's tenth section: a small real model measured on this machine, and its loop beside a prediction.

What is measured lies in :mod:`.real_model`; here it is put into tables and words.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import charts
from .model import Column, Section, Table

if TYPE_CHECKING:
    from ..real_model.lags import LagCurve
    from ..real_model.models import ModelFacts
    from ..real_model.resume import ResumeDrill
    from ..real_model.workloads import ModelChoice, Workload

TITLE = "A real model"
NOT_MEASURED = (
    "This profile measures no model; its other nine sections need none. "
    "`lagsweep lab --profile real-model` samples, trains, saves and times a small one on this machine."
)
Tell = Callable[[str], None]


@dataclass
class Measured:
    """All that was measured, and how long each part took: by the clock, and of CPU in all processes."""

    facts: ModelFacts
    workload: Workload
    curve: LagCurve
    drill: ResumeDrill
    loops: list[dict[str, Any]]
    prediction: list[dict[str, Any]]
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)


def not_measured_section() -> Section:
    """Section 10 of a profile without a model."""
    return Section(10, TITLE, (NOT_MEASURED,))


def real_model_section(choice: ModelChoice, tell: Tell | None = None) -> Section:
    """Section 10: measure a real model and hold a prediction of its asynchronous loop against it.

    Parameters
    ----------
    choice : ModelChoice
        Its packages are installed (:func:`~..real_model.needs.require_packages`).
    tell : callable, optional
        Gets a line as each part begins.

    Returns
    -------
    Section

    Raises
    ------
    ConfigError
        If a hub's model cannot be had.
    StoreError
        If one of the two processes ends early.
    """
    return section_of(measure(choice, tell))


def measure(choice: ModelChoice, tell: Tell | None = None) -> Measured:
    """Measure a model; all files that this needs are temporary and gone at its end, whatever that is.

    Parameters
    ----------
    choice : ModelChoice
    tell : callable, optional

    Returns
    -------
    Measured
    """
    from ..real_model.lags import lag_curve
    from ..real_model.models import one_thread, prepare
    from ..real_model.policies import ModelLearner, ModelSampler
    from ..real_model.prediction import calibrated, prediction_rows
    from ..real_model.resume import resume_drill
    from ..real_model.swept_folder import swept_folder
    from ..real_model.two_processes import loop_rows, timed_loops
    from ..real_model.workloads import workload_of

    workload = workload_of(choice)
    seconds: dict[str, tuple[float, float]] = {}

    @contextmanager
    def part(words: str) -> Iterator[None]:
        if tell is not None:
            tell(words)
        started, used = time.monotonic(), _cpu_seconds()
        yield
        seconds[words] = (time.monotonic() - started, _cpu_seconds() - used)

    with swept_folder("lagsweep-real-model-") as whole, one_thread():
        folders = {one: whole / one for one in ("model", "checkpoint", "loops")}
        for folder in folders.values():
            folder.mkdir()
        with part("loading the model"):
            facts = prepare(choice, folders["model"], workload.seed)
        with part("lags"):
            sampler = ModelSampler(folders["model"], asdict(workload))
            learner = ModelLearner(folders["model"], asdict(workload))
            curve = lag_curve(sampler, learner, workload)
            del sampler, learner
        with part("checkpoint and resumes"):
            drill = resume_drill(folders["model"], folders["checkpoint"], workload)
        with part("two processes"):
            rows = timed_loops(folders["model"], folders["loops"], workload)
        with part("calibration"):
            prediction = prediction_rows(calibrated(rows, workload), rows, workload)
    return Measured(facts, workload, curve, drill, loop_rows(rows), prediction, seconds)


def _cpu_seconds() -> float:
    """Return what this process and those that it waited for have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def section_of(measured: Measured) -> Section:
    """Put what was measured into words, tables and charts."""
    tables = (
        _model_table(measured),
        _lag_table(measured.curve),
        _contract_table(measured.curve),
        _resume_table(measured.drill),
        _loop_table(measured.loops),
        _loop_cpu_table(measured.loops),
        _prediction_table(measured.prediction),
        _seconds_table(measured.seconds),
    )
    drawn = (charts.real_lag_chart(measured.curve.rows), charts.prediction_chart(measured.prediction))
    return Section(10, TITLE, _paragraphs(measured), tables, drawn)


def _paragraphs(measured: Measured) -> tuple[str, ...]:
    from ...kernels import human_bytes

    curve, work = measured.curve, measured.workload
    first, last = curve.rows[0], curve.rows[-1]
    exact = next(row for row in measured.drill.rows if row["resume"] == "from everything")
    kept = exact["equal_losses"] and exact["equal_weights"]
    ahead = measured.prediction[-1]
    meets = "meets" if ahead["inside"] else "DOES NOT MEET"
    gain = measured.loops[0]["step_seconds"] / measured.loops[1]["step_seconds"]
    return (
        f"{measured.facts.name}, {measured.facts.parameters:,} parameters, one thread of the CPU for each "
        "process. The sampling side runs in bfloat16, as inference engines do, the trainer in float32, so "
        "their log-probabilities differ at lag 0 already. Rewards are a toy: the share of letters that are "
        "an e.",
        f"{len(curve.held)} rollouts of the first policy ({curve.active_tokens} tokens by the mask, "
        f"{curve.cut} responses cut) are scored after each of {work.updates} optimizer steps that train on "
        f"other samples. At lag {last['lag']} their normalized ESS is {last['token']:.3f} over tokens and "
        f"{last['sequence']:.3f} over sequences (at lag 0 {first['token']:.3f} and {first['sequence']:.3f}): "
        "the level matters more than the lag. One seed, few rollouts: an example, not a law.",
        "The resume from model, optimizer, generator and queue "
        + ("has the losses and weights of the run that went on, bit for bit" if kept else "IS NOT EXACT")
        + f"; the checkpoint has {human_bytes(measured.drill.checkpoint_bytes)}. The one from the weights "
        "alone trains on without an error, on other samples.",
        "A generator and a trainer, each a process, have a queue between them; weights go over as files that "
        "take their name in one rename. In turn, a step is generation, training, writing. With one group "
        f"ahead they overlap: {gain:.2f} times the updates, at a mean lag of "
        f"{measured.loops[1]['lag']:.2f}. The two loops alternate, {work.rounds} rounds of "
        f"{work.loop_updates} updates each, of which the first does not count. Of CPU a part takes nearly "
        "the same whatever else the machine does: a part that is longer by the clock had to share.",
        "The configuration is fitted to the loop in turn alone, then asked what one group ahead would "
        f"bring: {ahead['predicted']:.3g} s a step against {ahead['measured']:.3g} s measured "
        f"({ahead['error']:+.0%}); its range {meets} the interval of what was measured. What the fit cannot "
        "know is how two busy processes slow each other down; the seconds of the parts show it.",
    )


def _model_table(measured: Measured) -> Table:
    facts, work = measured.facts, measured.workload
    rows = [
        {"setting": "model", "value": facts.name},
        {"setting": "revision", "value": facts.revision[:40]},
        {"setting": "parameters", "value": f"{facts.parameters:,}"},
        {"setting": "ids that end a response", "value": ", ".join(map(str, facts.eos))},
        {"setting": "id that fills rows", "value": str(facts.pad)},
        {"setting": "chat template, SHA-256", "value": facts.template_sha256[:16] or "none"},
        {"setting": "decoding", "value": f"temperature 1, top-p 1, at most {work.max_new_tokens} tokens"},
        {"setting": "group, prompts", "value": f"{work.group_size} rollouts, {len(facts.prompts)} prompts"},
        {"setting": "optimizer", "value": f"AdamW, learning rate {work.learning_rate:g}"},
        {"setting": "seed", "value": str(work.seed)},
        {"setting": "machine", "value": f"{platform.machine()}, {platform.system()}"},
        *({"setting": name, "value": _version_here(name)} for name in ("torch", "transformers")),
    ]
    return Table(
        "real_model", "What is measured", (Column("setting", "setting"), Column("value", "value")), rows
    )


def _version_here(package: str) -> str:
    """Name a package's version; a measurement may be shown where it was not made."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed here"


def _lag_table(curve: LagCurve) -> Table:
    columns = (
        Column("lag", "lag"),
        Column("token", "token ESS", ".3f"),
        Column("sequence", "sequence ESS", ".3f"),
        Column("sequence_geometric", "geometric", ".3f"),
        Column("drift", "drift", ".3f"),
        Column("kl", "KL, nats a token", ".4f"),
        Column("largest", "largest weight", ".2f"),
    )
    return Table("real_lags", "The first policy's rollouts, as later ones weigh them", columns, curve.rows)


def _contract_table(curve: LagCurve) -> Table:
    columns = (
        Column("fault", "what is wrong"),
        Column("records", "records"),
        Column("findings", "findings"),
        Column("codes", "codes"),
    )
    return Table("real_contract", "Its records against the contract", columns, curve.faults)


def _resume_table(drill: ResumeDrill) -> Table:
    rows = [
        {
            "resume": row["resume"],
            "equal_losses": row["equal_losses"],
            "equal_weights": row["equal_weights"],
            "losses": ", ".join(f"{loss:.9g}" for loss in row["losses"]),
        }
        for row in drill.rows
    ]
    columns = (
        Column("resume", "resume"),
        Column("equal_losses", "losses equal"),
        Column("equal_weights", "weights equal"),
        Column("losses", "losses after the checkpoint"),
    )
    title = f"A checkpoint, saved in {drill.save_seconds:.1f} s and read in {drill.load_seconds:.1f} s"
    return Table("real_resume", title, columns, rows)


def _loop_table(rows: list[dict[str, Any]]) -> Table:
    columns = (
        Column("loop", "loop"),
        Column("step_seconds", "step, s", ".3f", "step_half"),
        Column("sampling_seconds", "sampling", ".3f"),
        Column("training_seconds", "training", ".3f"),
        Column("publication_seconds", "writing", ".3f"),
        Column("wait_seconds", "waits", ".3f"),
        Column("lag", "lag", ".1f"),
        Column("tokens_per_second", "tok/s", ".1f"),
        Column("token_ess", "ESS", ".3f"),
    )
    title = f"Two processes, {rows[0]['updates']} updates each: means, s; ESS is over tokens"
    return Table("real_loops", title, columns, rows)


def _loop_cpu_table(rows: list[dict[str, Any]]) -> Table:
    columns = (
        Column("loop", "loop"),
        Column("sampling_cpu_seconds", "sampling", ".3f"),
        Column("load_cpu_seconds", "loading", ".3f"),
        Column("training_cpu_seconds", "training", ".3f"),
        Column("publication_cpu_seconds", "writing", ".3f"),
    )
    return Table("real_loops_cpu", "The same parts in seconds of CPU", columns, rows)


def _prediction_table(rows: list[dict[str, Any]]) -> Table:
    rows = [{**row, "range": f"{row['low']:.3f} to {row['high']:.3f}"} for row in rows]
    columns = (
        Column("loop", "loop"),
        Column("predicted", "predicted, s", ".3f"),
        Column("range", "range"),
        Column("measured", "measured, s", ".3f", "measured_half"),
        Column("error", "error", "+.1%"),
        Column("predicted_wait", "waits", ".0%"),
        Column("measured_wait", "measured", ".0%"),
    )
    return Table("real_prediction", "A step, predicted from the loop in turn", columns, rows)


def _seconds_table(seconds: dict[str, tuple[float, float]]) -> Table:
    parts = {**seconds, "all of it": tuple(sum(both) for both in zip(*seconds.values()))}
    rows = [{"part": name, "seconds": wall, "cpu_seconds": cpu} for name, (wall, cpu) in parts.items()]
    columns = (
        Column("part", "part"),
        Column("seconds", "seconds", ".1f"),
        Column("cpu_seconds", "of CPU", ".1f"),
    )
    return Table("real_seconds", "What this section took", columns, rows)
