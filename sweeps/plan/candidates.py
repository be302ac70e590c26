"""The cells of a plan: splits × sizes of engines × rules × caps × cadences, and what stands against each.

A cell that cannot be is kept with the reason and the amount: memory that is missing, a cache below the
longest answer, GPUs that do not divide, a publication that waits for more batches than may start before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..config.engine import Engine
from ..engines.cache_tokens import GIB, CacheTokens, cache_tokens
from ..engines.roofline import Deployment
from ..presets.registry import preset_settings
from ..presets.systems import read_system, workload_config
from .cells import Cell, Reason
from .engine_law import engine_from, mean_context, running_at_once, step_coefficients
from .networks import load_network
from .question import COLOCATED, Question
from .trainer_law import TrainerMemory, publication_seconds, train_tokens_per_second, trainer_memory

# GPUs that take turns: what colocated means for the rules of a synchronous loop.
_COLOCATED_RULES = "synchronous:generation_while_training=false"
_NEARLY = 0.8  # of what the cache holds: a cap beyond only preempts


class Candidates:
    """Builds a question's cells; each sum is done once."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.context = mean_context(question.law, question.prompt_tokens)
        self._deployment = cache(self._make_deployment)
        self._memory = cache(self._make_memory)
        self._rules = cache(self._make_rules)
        self._cache_tokens = cache(self._make_cache_tokens)

    def workload(self) -> dict[str, Any]:
        """Return the fields that all cells have in common."""
        asked = self.question
        return {
            "batch_groups": asked.prompts,
            "group_size": asked.group_size,
            "response_length": asked.law,
            "prompt_tokens": asked.prompt_tokens,
            "rollout_overhead_seconds": 0.0,
            **(
                {"drift_per_version": asked.drift_per_version}
                if asked.drift is None
                else {"drift": asked.drift}
            ),
            "max_queue_tokens": None,
        }

    def cells(self) -> list[Cell]:
        """Return every cell, those that cannot be with their reasons."""
        asked = self.question
        found = []
        for rules in asked.systems:
            splits = (asked.gpus,) if rules == COLOCATED else asked.rollout_gpus
            for split, ranks in product(splits, asked.tensor_parallel):
                for cap, cadence in product(asked.caps, self._cadences(rules)):
                    found.append(self._cell(split, ranks, rules, cap, cadence))
        return found

    def point(self, cell: Cell, values: Mapping[str, float]) -> dict[str, Any]:
        """Return a cell's values on the axes of the sweep, at some inputs.

        Raises
        ------
        ConfigError
            Where the cell cannot be at these inputs.
        """
        asked = self.question
        held = self._held(cell, values)
        if held < asked.longest_tokens:
            rule = f"must hold the longest rollout, {asked.longest_tokens:,} tokens"
            raise ConfigError("engine.kv_cache_tokens", rule, held, "Use more GPUs for an engine.")
        slots = self._slots(cell)
        running = running_at_once(cell.cap, held, self.context, slots / cell.engines)
        shape, card = asked.model.shape, asked.accelerator
        return {
            "system": _COLOCATED_RULES if cell.is_colocated else cell.rules,
            "sync_cadence": cell.cadence,
            "rollout_workers": slots,
            "engine": self._engine(cell, values, running, held),
            "train_overhead_seconds": float(f"{values['update_overhead_seconds'] * self._steps(cell):.6g}"),
            "train_tokens_per_second": train_tokens_per_second(
                shape,
                card,
                cell.train_gpus,
                asked.law,
                asked.prompt_tokens,
                share_of_peak=values["model_flops_utilization"],
                forward_passes=asked.forward_passes + asked.reference_model,
            ),
            "sync_seconds": self._publication(cell, values),
        }

    def config(self, point: Mapping[str, Any], **more: Any) -> PipelineConfig:
        """Return the configuration of a point.

        Raises
        ------
        ConfigError
            Where its settings contradict each other.
        """
        fields = {name: value for name, value in point.items() if name != "sync_cadence"}
        cadence = {"sync_every_updates": point["sync_cadence"]}
        return workload_config(**{**self.workload(), **fields, **cadence, **more})

    def running(self, cell: Cell, values: Mapping[str, float]) -> float:
        """Return how many rollouts an engine of a cell decodes at once."""
        most = self._slots(cell) / cell.engines
        return running_at_once(cell.cap, self._held(cell, values), self.context, most)

    def cache(self, cell: Cell) -> CacheTokens:
        """Return what an engine of a cell holds, with its range."""
        return self._cache_tokens(cell.tensor_parallel, cell.cap, cell.is_colocated)

    def memory(self, cell: Cell) -> TrainerMemory:
        """Return the trainer's memory of a cell."""
        return self._memory(cell.train_gpus, cell.rollout_gpus, cell.tensor_parallel, cell.is_colocated)

    # What a cell is made of.

    def _cell(self, split: int, ranks: int, rules: str, cap: int, cadence: int) -> Cell:
        asked = self.question
        train = asked.gpus if rules == COLOCATED else asked.gpus - split
        cell = Cell(split, train, ranks, max(1, split // ranks), rules, cap, cadence)
        reasons = list(self._against(cell))
        point: dict[str, Any] = {}
        if not reasons:
            try:
                point = self.point(cell, asked.values())
                reasons += self._against_rules(cell, self.config(point))
            except ConfigError as error:
                reasons.append(Reason("rules", str(error), 0.0, ""))
        return Cell(
            split, train, ranks, cell.engines, rules, cap, cadence, tuple(reasons), {} if reasons else point
        )

    def _against(self, cell: Cell) -> Iterator[Reason]:
        """Find what stands against a cell before it is built."""
        asked = self.question
        ranks = cell.tensor_parallel
        over = cell.rollout_gpus % ranks
        if over or asked.model.shape.num_heads % ranks:
            what = f"{cell.rollout_gpus} rollout GPUs" if over else f"{asked.model.shape.num_heads} heads"
            yield Reason(
                "divide", f"{what} do not divide into engines of {ranks}", float(over or ranks), "GPUs"
            )
            return
        if ranks > asked.gpus_per_node:
            text = (
                f"engines of {ranks} GPUs span nodes of {asked.gpus_per_node}, whose links are not described"
            )
            yield Reason("node", text, float(ranks - asked.gpus_per_node), "GPUs")
            return
        if asked.measured is None or asked.measured.engine.kv_cache_tokens is None:
            yield from self._against_memory(cell)
        elif asked.measured.engine.kv_cache_tokens < asked.longest_tokens:
            yield self._too_small(asked.measured.engine.kv_cache_tokens, None)
        missing = self.memory(cell).missing_bytes
        if missing:
            text = f"training lacks {missing / GIB:.1f} GiB on each of {_gpus(cell)}"
            yield Reason("trainer_memory", text, missing / GIB, "GiB")

    def _against_memory(self, cell: Cell) -> Iterator[Reason]:
        asked, found = self.question, self.cache(cell)
        if found.left_bytes <= 0:
            text = f"weights and vLLM's own parts leave no cache: {-found.left_bytes / GIB:.1f} GiB missing"
            yield Reason("engine_memory", text, -found.left_bytes / GIB, "GiB")
        elif found.tokens < asked.longest_tokens:
            lacks = (asked.longest_tokens - found.tokens) * found.bytes_per_token
            yield self._too_small(found.tokens, lacks / GIB)

    def _too_small(self, held: int, gib: float | None) -> Reason:
        longest = self.question.longest_tokens
        lacks = f"{longest - held:,} tokens" + ("" if gib is None else f" or {gib:.1f} GiB a GPU")
        text = f"the cache holds {held:,} tokens, the longest rollout has {longest:,}: {lacks} missing"
        return Reason("cache", text, float(longest - held), "tokens")

    def _against_rules(self, cell: Cell, config: PipelineConfig) -> Iterator[Reason]:
        """Find what would stall a cell's rules, and caps that change nothing."""
        asked = self.question
        batches = -(-cell.cadence // config.updates_per_batch)
        for limit in config.limits:
            if limit.done == "published" and limit.groups < batches * asked.prompts:
                may = limit.groups / asked.prompts
                text = (
                    f"a publication every {cell.cadence} updates needs {batches} batches, "
                    f"the lag limit lets {may:g} start before it: {batches - may:g} missing"
                )
                yield Reason("lag_limit", text, batches - may, "batches")
        too_old = config.max_policy_lag + config.updates_per_batch - config.sync_every_updates
        if config.stale_check != "never" and too_old < 0:
            text = f"weights come {-too_old} updates too late for the lag limit of {config.max_policy_lag}"
            yield Reason("lag_limit", text, float(-too_old), "updates")
        yield from _against_caps(config)
        smaller = [cap for cap in asked.caps if cap < cell.cap]
        if smaller:
            most = self.running(cell, asked.values())
            if _NEARLY * most <= max(smaller):
                text = f"cap {cell.cap} changes little: {most:,.0f} run at once, {max(smaller)} nearly all"
                yield Reason("same", text, cell.cap - most, "rollouts")

    # The parts, each made once.

    def _make_deployment(self, ranks: int) -> Deployment:
        asked = self.question
        return Deployment(
            model=asked.model,
            accelerator=asked.accelerator,
            tensor_parallel=ranks,
            engine_format=asked.engine_format,
            cache_format=asked.cache_format,
        )

    def _make_memory(self, gpus: int, rollout: int, ranks: int, colocated: bool) -> TrainerMemory:
        asked = self.question
        return trainer_memory(
            asked.model,
            asked.accelerator,
            gpus=gpus,
            rollout_gpus=None if colocated else rollout,
            tensor_parallel=ranks,
            longest_tokens=asked.longest_tokens,
            reference_model=asked.reference_model,
        )

    def _make_cache_tokens(self, ranks: int, cap: int, colocated: bool) -> CacheTokens:
        asked = self.question
        resident = self._memory(asked.gpus, asked.gpus, ranks, True).resident_bytes if colocated else 0.0
        return cache_tokens(
            self._deployment(ranks),
            max_running=cap,
            utilization=asked.utilization,
            reserved_bytes=resident,
            context_tokens=self.context,
        )

    def _make_rules(self, rules: str) -> dict[str, Any]:
        preset, knobs = read_system(_COLOCATED_RULES if rules == COLOCATED else rules)
        asked = self.question
        fields = {"batch_groups": asked.prompts, "group_size": asked.group_size}
        return preset_settings(preset, {**fields, **knobs})

    def _cadences(self, rules: str) -> tuple[int, ...]:
        """Return the cadences to try: a system's own where its rules name one."""
        own = self._rules(rules).get("sync_every_updates")
        return self.question.cadences if own is None else (int(own),)

    def _steps(self, cell: Cell) -> int:
        """Return the optimizer steps that an update of the plan has: each costs its fixed part."""
        return max(self.question.optimizer_steps, int(self._rules(cell.rules).get("updates_per_batch", 1)))

    def _slots(self, cell: Cell) -> int:
        """Return the rollouts in flight: as many as the engines' caps take, and the rules let start."""
        asked = self.question
        rules = self._rules(cell.rules)
        groups = [limit["groups"] for limit in rules.get("limits", ()) if limit["count"] == "started"]
        running = rules.get("max_running_groups")
        groups += [running] if running else []
        most = min(groups, default=None)
        slots = cell.engines * cell.cap
        return slots if most is None else max(1, min(slots, most * asked.group_size))

    def _held(self, cell: Cell, values: Mapping[str, float]) -> int:
        """Return the tokens of context that an engine holds."""
        measured = self.question.measured
        if measured is not None and measured.engine.kv_cache_tokens is not None:
            return measured.engine.kv_cache_tokens
        found = self.cache(cell)
        left = found.left_bytes + values.get("cache_memory", 0.0) * found.doubt_bytes
        return max(0, int(left / found.bytes_per_token) // 16 * 16)

    def _engine(self, cell: Cell, values: Mapping[str, float], running: float, held: int) -> Engine:
        measured = self.question.measured
        if measured is not None:
            names = ("step_seconds", "step_seconds_per_rollout", "step_seconds_per_context_token")
            coefficients = {name: values[name] for name in (*names, "prefill_seconds_per_token")}
        else:
            deployment = self._deployment(cell.tensor_parallel)
            coefficients = step_coefficients(deployment, values, running, self.context)
        return engine_from(coefficients, count=cell.engines, kv_cache_tokens=held, max_running=cell.cap)

    def _publication(self, cell: Cell, values: Mapping[str, float]) -> float:
        """Return the seconds of a publication; colocated weights stay in their node, and phases switch."""
        asked, rate = self.question, values["publication_rate"]
        if not cell.is_colocated:
            return publication_seconds(asked.model.shape, rate)
        if asked.network.name == "across-nodes":
            rate *= load_network("one-node").bytes_per_second / asked.network.bytes_per_second
        seconds = publication_seconds(asked.model.shape, rate) + values["turn_seconds"]
        return float(f"{seconds:.6g}")


def _gpus(cell: Cell) -> str:
    """Name the trainer's GPUs."""
    if cell.is_colocated:
        return f"all {cell.train_gpus} GPUs"
    return f"{cell.train_gpus} training GPU{'s' if cell.train_gpus > 1 else ''}"


def _against_caps(config: PipelineConfig) -> Iterator[Reason]:
    """Find caps below a batch, which stall."""
    batch = config.batch_groups or 1
    for name, stalls in (
        ("max_running_groups", config.admit == "batch"),
        ("max_queue_groups", True),
    ):
        cap = getattr(config, name)
        if cap is not None and stalls and cap < batch:
            text = f"{name} {cap} stalls: a batch needs {batch} groups, {batch - cap} more"
            yield Reason("cap", text, float(batch - cap), "groups")
    if config.rollout_workers < config.group_size and config.queue_overflow == "hold":
        short = config.group_size - config.rollout_workers
        text = f"{config.rollout_workers} slots stall: a group needs {config.group_size}"
        yield Reason("cap", text, float(short), "slots")
