"""A run of the general loop in which a user's own rules decide, and many such runs in turn.

The compiled loop comes back with a question and goes on with the answer, so all of the run's own arithmetic
is the kernels'; with nothing custom nothing is asked.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...kernels._arguments import is_number, is_whole
from ...kernels.errors import ConfigError
from ...kernels.pipeline import records
from ...kernels.pipeline.metrics import LAG_BINS
from ..config.config import PipelineConfig
from ..runs.general import GeneralRun, new_draws
from ..runs.general_cells import DRAW_BUFFER_ROLLOUTS
from ..runs.result import CUSTOM_RULE, GeneralResult
from .compiled import driver_of
from .custom import Custom
from .rules import TABLES, AdmissionState, RolloutStart, RunMetric

# A function of Numba names itself when it is copied first, and fails where two threads do so at once.
_COPYING = threading.Lock()


class CustomRun(GeneralRun):
    """One run with rules of the user's own; each run has copies of its own, made at its beginning."""

    def __init__(self, config: PipelineConfig, custom: Custom, **options: Any) -> None:
        self.custom = custom
        self._copies: Custom | None = None
        self._driver = driver_of(custom)
        super().__init__(config, **options)

    def begin(self, seed: int) -> None:
        """Put the run at time 0 of a seed; its rules are copied when they are first needed."""
        super().begin(seed)
        self._copies = None

    def _new_arrays(self) -> records.GeneralArrays:
        asked = np.zeros(1, records.ASKED)
        asked["admission"] = self.custom.admission is not None
        asked["length"] = self.custom.length is not None
        asked["answer"] = records.NO_ANSWER
        arrays = super()._new_arrays()
        return arrays._replace(
            slot_ticks=np.zeros(len(arrays.slot_ticks) + 1, np.int64),
            asked=asked,
            admission_state=np.zeros(1, records.ADMISSION_STATE),
            rollout_start=np.zeros(1, records.ROLLOUT_START),
        )

    def _clear(self) -> None:
        super()._clear()
        self.held.asked["answer"] = records.NO_ANSWER

    @property
    def copies(self) -> Custom:
        """This run's own rules, told of its beginning."""
        if self._copies is None:
            with _COPYING:
                self._copies = copy.deepcopy(self.custom)
            seed = int(self.seed)
            config = self.config if self.config.seed == seed else self.config.replace(seed=seed)
            for _, rule in self._copies.parts():
                if hasattr(rule, "begin"):
                    rule.begin(config, seed)
        return self._copies

    def _call(self, until: np.int64, budget: np.int64) -> int:
        copies = self.copies
        last = int(self.state.cost) + int(budget)
        while True:
            left = np.int64(max(self.state.settling != 2, last - int(self.state.cost)))
            status: int = self._driver(*self.arguments(until, left))
            if status == records.ASKS_ADMISSION:
                answer = self._admits(copies)
            elif status == records.ASKS_LENGTH:
                answer = self._tokens(copies)
            elif self.let_happen(status):
                continue
            else:
                return status
            self.held.asked[0].answer = answer

    def _beginning(self, config: PipelineConfig) -> Callable[..., GeneralRun]:
        return partial(CustomRun, config, self.custom)

    def _admits(self, copies: Custom) -> int:
        answer = copies.admits(AdmissionState(*self.held.admission_state[0].item()))
        if isinstance(answer, bool | np.bool_):
            return int(answer)
        raise ConfigError("admission", "must answer True or False", answer, "Return a comparison.")

    def _tokens(self, copies: Custom) -> int:
        refused = int(self.held.asked[0].answer)  # of a compiled process, which has answered
        answer: Any = refused
        if refused == records.NO_ANSWER:
            answer = copies.tokens(RolloutStart(*self.held.rollout_start[0].item()))
        longest = int(self.parameters[0].law_maximum)
        if is_whole(answer) and 1 <= answer <= longest:
            return int(answer)
        rule = f"must give a whole number of tokens from 1 to {longest}, the maximum of response_length"
        raise ConfigError("length", rule, answer, "Cut it there, or give the configuration a longer law.")

    def result(self) -> GeneralResult:
        """Close a run that was advanced to its end: what the loop reports, then the user's metrics."""
        core = super().result()
        if self.custom.admission is not None:
            core.slot_ticks[CUSTOM_RULE] = int(self._close(np.zeros(1, self.REPORT))[0][-1])
        for metric in self.copies.metrics:
            core.metrics[metric.name] = _number(metric, core)
        return core


def _number(metric: RunMetric, run: GeneralResult) -> float:
    value = metric.value(run)
    if is_number(value):
        return float(value)
    raise ConfigError(f"metrics.{metric.name}", "must be a number", value, "Return a float; NaN for none.")


class CustomCells:
    """Some configurations at some seeds, one run after another; as :class:`.runs.many.Cells`."""

    def __init__(self, custom: Custom, configs: Sequence[PipelineConfig], **record: bool) -> None:
        self._custom, self._configs = custom, configs
        self._wanted = record
        read = {table for metric in custom.metrics for table in metric.tables}
        self._record = {table: bool(record.get(table)) or table in read for table in TABLES}
        self._draws = new_draws(DRAW_BUFFER_ROLLOUTS if len(configs) > 1 else 1 << 10)
        known = [(name, GeneralRun.REPORT[name]) for name in GeneralRun.REPORT.names or ()]
        own = [(metric.name, np.dtype(np.float64)) for metric in custom.metrics]
        self.REPORT = np.dtype((np.record, np.dtype([*known, *own], align=True)))
        self.lag_bins = LAG_BINS

    def begin(self, seeds: np.ndarray, metrics: np.ndarray, lag_counts: np.ndarray) -> None:
        """Start over with the first configuration at the first seed."""
        self._seeds, self.metrics, self._lag_counts = seeds, metrics, lag_counts
        self._run: CustomRun | None = None
        self.finished = 0
        self.reasons: dict[int, str] = {}

    def step(self) -> None:
        """Let the run in hand go on for a while."""
        index = self.finished
        if self._run is None:
            seed, cell = divmod(index, len(self._configs))
            self._run = CustomRun(self._configs[cell], self._custom, draws=self._draws, **self._record)
            self._run.begin(int(self._seeds[seed]))
        try:
            if not self._run.step():
                return
            self._file(index, self._run)
        except ConfigError as error:
            self.reasons[index] = str(error)
        self._last, self._run = self._run, None
        self.finished += 1

    def _file(self, index: int, run: CustomRun) -> None:
        report = np.zeros(1, GeneralRun.REPORT)
        run.summarize(report)
        for name in GeneralRun.REPORT.names or ():
            self.metrics[name][index] = report[name][0]
        self._lag_counts[index] = run.lag_counts
        if self._custom.metrics:
            found = run.result().metrics
            for metric in self._custom.metrics:
                self.metrics[metric.name][index] = found[metric.name]

    def batch_rows(self) -> np.ndarray:
        """Return the recorded batches of the run that has just come to its end."""
        return self._last.batch_rows()

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what the run that has just come to its end recorded, as far as it is wanted."""
        found = self._last.tables(core=True)
        return {table: columns for table, columns in found.items() if self._wanted.get(table)}

    def let_go(self) -> None:
        """Hold no longer what was given to be filled."""
        del self.metrics, self._lag_counts
