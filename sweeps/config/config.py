"""The settings of one simulated pipeline: every field of the model, checked before anything runs.

A configuration is frozen and keyword-only. Level 1 is the core; the fields of levels 2 to 4 (generation,
publication styles, groups, admission ledger, stale work, failures) are off by default, and a run with the
defaults is the level 1 run, bit for bit. Rules between fields are in :mod:`.config.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
)

from ...kernels.errors import ConfigError
from ..checks import (
    Flag,
    RealNumber,
    TokenCount,
    WholeNumber,
    checked,
    flag_of,
    mapping_of,
    raise_config_error,
)
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw, SecondsLaw
from .engine import Engine
from .help_text import level_of, show_fields
from .rules import contradictions

if TYPE_CHECKING:
    from .settings import PresetSettings, Settings, Whole

# Fields whose values decide about options with metrics of their own: ``PipelineConfig.options_in_use``.
OPTION_FIELDS = frozenset(
    {
        "queue_overflow",
        "fetch_seconds",
        "evaluation_every_updates",
        "engine",
        "trainer_mtbf_seconds",
        "checkpoint_every_updates",
        "worker_mtbf_seconds",
    }
)

# The three axes of a sweep that carry names of their own.
AXIS_FIELDS = {
    "queue_cap": "max_queue_tokens",
    "max_lag": "max_policy_lag",
    "sync_cadence": "sync_every_updates",
}


@cache
def _default_law() -> LengthLaw:
    """Build the law of responses that a configuration has by default: once, for its table takes half a ms."""
    return LengthLaw.lognormal()


# What may be written in place of what is no law or engine, in a spec's file and in Python.
WAYS_OUT = {
    "response_length": (
        'In TOML: { law = "lognormal", median = 300, sigma = 0.6 }; in Python: LengthLaw.lognormal(300, 0.6).'
    ),
    "environment_seconds": 'In TOML: { law = "fixed", seconds = 2.0 }; in Python: SecondsLaw.fixed(2.0).',
    "drift": (
        'In TOML: { law = "from_records", path = "rollouts.jsonl", level = "token" }; '
        'in Python: DriftLaw.from_records("rollouts.jsonl", level="token").'
    ),
    "engine": (
        'In TOML: { step_seconds = 0.02 } or { file = "engine.toml" }; in Python: Engine(step_seconds=0.02).'
    ),
}


def _as_length_law(value: Any) -> Any:
    if isinstance(value, LengthLaw):
        return value
    if isinstance(value, dict):
        return LengthLaw.from_dict(value)
    raise ConfigError("response_length", "must be a length law", value, WAYS_OUT["response_length"])


def _as_seconds_law(value: Any) -> Any:
    if value is None or isinstance(value, SecondsLaw):
        return value
    if isinstance(value, dict):
        return SecondsLaw.from_dict(value)
    way_out = WAYS_OUT["environment_seconds"]
    raise ConfigError("environment_seconds", "must be a law in seconds", value, way_out)


def as_drift_law(value: Any) -> DriftLaw | None:
    """Return a law of drift, or none, from what may be given for one."""
    if value is None or isinstance(value, DriftLaw):
        return value
    if isinstance(value, dict):
        return DriftLaw.from_dict(value)
    raise ConfigError("drift", "must be a law of drift", value, WAYS_OUT["drift"])


def as_engine(value: Any) -> Engine | None:
    """Return an engine, or none, from what may be given for one."""
    if value is None or isinstance(value, Engine):
        return value
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return Engine(**value)
    raise ConfigError("engine", "must be an engine", value, WAYS_OUT["engine"])


def _engine_to_dict(engine: Engine | None) -> Any:
    return None if engine is None else engine.to_dict()


def _law_to_dict(law: LengthLaw | SecondsLaw | DriftLaw | None) -> Any:
    return None if law is None else law.to_dict()


Counted = Literal["started", "finished"]
Done = Literal["published", "popped", "trained"]


class Limit(BaseModel):
    """One line of the admission ledger: a group may be admitted while ``count < B * done + groups``.

    Parameters
    ----------
    count : {"started", "finished"}
        Groups admitted and not dropped; ``"finished"`` leaves out those still running.
    done : {"published", "popped", "trained"}
        Whole batches inside the published weights, taken by the trainer, or trained.
    groups : int
        The constant of the line, in groups.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Counted = "started"
    done: Done = "published"
    groups: Annotated[WholeNumber, Field(ge=0, le=2**52)]

    @overload
    def __init__(self, count: Counted = ..., done: Done = ..., *, groups: Whole) -> None: ...
    @overload
    def __init__(self, count: Counted, done: Done, groups: Whole) -> None: ...
    def __init__(self, *args: Any, **fields: Any) -> None:
        fields.update(zip(("count", "done", "groups"), args))
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise_config_error(error, type(self).model_fields, prefix="limits.")


def _as_limits(value: Any) -> Any:
    if isinstance(value, Limit | dict):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ConfigError("limits", "must be a list of limits", value, "Give a list of Limit(...).")
    return tuple(_as_limit(item) for item in value)


def _as_limit(item: Any) -> Limit:
    if isinstance(item, Limit):
        return item
    if isinstance(item, dict) and all(isinstance(name, str) for name in item):
        return Limit(**item)
    if isinstance(item, list | tuple) and 1 <= len(item) <= 3:
        return Limit(*item)
    way_out = "Write Limit(count, done, groups), or a table with these keys."
    raise ConfigError("limits", "must hold limits", item, way_out)


Positive = Annotated[RealNumber, Field(gt=0)]
NonNegative = Annotated[RealNumber, Field(ge=0)]
Count = Annotated[WholeNumber, Field(ge=1, le=2**52)]
CountFromZero = Annotated[WholeNumber, Field(ge=0, le=2**52)]


def _setting(default: Any, text: str, level: int = 1) -> Any:
    return Field(default=default, description=text, json_schema_extra={"level": level})


class PipelineConfig(BaseModel):
    """Settings of one simulated pipeline (frozen, keyword-only, every field checked).

    Raises
    ------
    ConfigError
        For an unknown or misspelt field, a wrong type, NaN, infinity or bool where a number is due, a value
        out of range, or fields that contradict each other; every finding is listed.

    Examples
    --------
    >>> config = PipelineConfig(rollout_workers=4, duration_seconds=60)
    >>> config.max_policy_lag
    2
    >>> config.replace(max_policy_lag=4).max_policy_lag
    4
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    mode: Literal["bounded_async", "sequential"] = _setting("bounded_async", "overlap the phases, or never")
    duration_seconds: Positive = _setting(120.0, "simulated horizon")
    stop_after_updates: Count | None = _setting(None, "end with this update, if it comes first")
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**64)] = _setting(0, "seed of all draws")
    rollout_workers: Annotated[WholeNumber, Field(ge=1, le=2**24)] = _setting(8, "rollout slots")
    decode_tokens_per_second: Positive = _setting(50.0, "decode speed of one slot")
    rollout_overhead_seconds: NonNegative = _setting(0.5, "prefill, tools, reward: added to each rollout")
    response_length: Annotated[LengthLaw, BeforeValidator(_as_length_law), PlainSerializer(_law_to_dict)] = (
        Field(
            default_factory=_default_law,
            description="law of the response length in tokens",
            json_schema_extra={"level": 1},
        )
    )
    max_queue_tokens: TokenCount | None = _setting(7000, "queue cap in tokens; none: no cap")
    admission: Literal["threshold", "reserve"] = _setting("threshold", "how the cap closes admission")
    batch_tokens: TokenCount | None = _setting(2500, "tokens that a training batch reaches")
    train_overhead_seconds: NonNegative = _setting(1.0, "fixed part of a training step")
    train_tokens_per_second: Positive = _setting(350.0, "training speed")
    max_policy_lag: CountFromZero = _setting(2, "largest lag, in versions, that may be trained")
    sync_every_updates: Count = _setting(1, "publish every so many updates")
    sync_seconds: NonNegative = _setting(1.0, "from the start of a publication to its visibility")
    drift_per_version: Annotated[RealNumber, Field(ge=0, le=10)] = _setting(
        0.2, "std of a rollout's log importance weight at lag 1"
    )
    drift: Annotated[DriftLaw | None, BeforeValidator(as_drift_law), PlainSerializer(_law_to_dict)] = (
        _setting(None, "drift measured from rollout records, in place of drift_per_version")
    )
    warmup_seconds: NonNegative = _setting(0.0, "metrics leave out what ends up to it")

    decode_slowdown_per_rollout: NonNegative = _setting(0.0, "slowdown g of decoding per other rollout", 2)
    environment_seconds: Annotated[
        SecondsLaw | None, BeforeValidator(_as_seconds_law), PlainSerializer(_law_to_dict)
    ] = _setting(None, "law of tool and verifier seconds, slot occupied", 2)
    prompt_tokens: CountFromZero = _setting(0, "prompt tokens that a training step counts too", 2)
    publication: Literal["background", "drain", "pause", "abort"] = _setting(
        "background", "what a publication does to generation", 2
    )
    resume_seconds: NonNegative = _setting(0.0, "fixed delay of an aborted rollout before it goes on", 2)
    reprefill_tokens_per_second: Positive | None = _setting(None, "re-prefill speed after an abort", 2)
    publication_blocks_trainer: Flag = _setting(False, "the trainer waits until a publication ends", 2)
    train_slowdown_when_generating: NonNegative = _setting(0.0, "slowdown f of training during decoding", 2)
    drift_length_exponent: Annotated[RealNumber, Field(ge=-10, le=10)] = _setting(
        0.0, "how drift grows with length", 2
    )
    generation_while_training: Flag = _setting(True, "decoding goes on while a step is under way", 2)
    fetch_seconds: NonNegative = _setting(0.0, "from a batch's pop to the earliest start of its step", 2)
    evaluation_every_updates: Count | None = _setting(None, "evaluate every so many updates", 2)
    evaluation_seconds: NonNegative = _setting(0.0, "an evaluation, in which no step is taken", 2)
    evaluation_stops_generation: Flag = _setting(False, "an evaluation stops decoding", 2)
    train_spread: Annotated[RealNumber, Field(ge=0, le=10)] = _setting(
        0.0, "spread of step times, as the std of their log", 2
    )

    engine: Annotated[Engine | None, BeforeValidator(as_engine), PlainSerializer(_engine_to_dict)] = _setting(
        None, "inference engines that decode in steps; none: one speed", 2
    )

    group_size: Annotated[WholeNumber, Field(ge=1, le=2**20)] = _setting(1, "rollouts per prompt", 3)
    prompt_sigma: Annotated[RealNumber, Field(ge=0, le=10)] = _setting(
        0.0, "spread of lengths between prompts", 3
    )
    filter_probability: Annotated[RealNumber, Field(ge=0, le=1)] = _setting(
        0.0, "chance that a ready group has no learning signal", 3
    )
    updates_per_batch: Annotated[WholeNumber, Field(ge=1, le=2**20)] = _setting(1, "updates per batch", 3)
    batch_groups: Annotated[WholeNumber, Field(ge=1, le=2**31)] | None = _setting(
        None, "groups per batch, in place of batch_tokens", 3
    )
    prefetch_batches: Annotated[WholeNumber, Field(ge=0, le=2**20)] = _setting(
        0, "further batches popped while training", 3
    )
    limits: Annotated[tuple[Limit, ...], BeforeValidator(_as_limits)] = _setting(
        (), "the admission ledger", 3
    )
    max_running_groups: CountFromZero | None = _setting(None, "most groups running at once", 3)
    admit: Literal["group", "batch"] = _setting("group", "admit groups one by one or by the batch", 3)
    one_batch_at_a_time: Flag = _setting(False, "admit no new batch while anything is running", 3)
    queue_order: Literal["fifo", "started", "oldest_version", "freshest", "random"] = _setting(
        "fifo", "which groups the trainer takes", 3
    )
    queue_overflow: Literal["block", "drop_oldest", "hold"] = _setting("block", "what a full queue does", 3)
    max_queue_groups: Count | None = _setting(None, "queue cap in groups, for drop_oldest", 3)
    stale_check: Literal["update", "dequeue", "never"] = _setting("update", "when lag is tested", 3)
    stale_action: Literal["drop", "requeue"] = _setting("drop", "what happens to stale work", 3)
    redraw_on_requeue: Flag = _setting(False, "requeued work draws anew", 3)
    cancel_in_flight: Flag = _setting(False, "cancel running groups that are too old", 3)

    trainer_mtbf_seconds: Positive | None = _setting(None, "mean time between failures of the trainer", 4)
    restart_seconds: NonNegative = _setting(0.0, "from a failure of the trainer until it works again", 4)
    checkpoint_every_updates: Count | None = _setting(
        None, "save every so many updates; none: only the start is saved", 4
    )
    checkpoint_seconds: NonNegative = _setting(0.0, "a checkpoint, in which the trainer stands still", 4)
    checkpoint_scope: Literal["full", "weights_only"] = _setting(
        "full", "whether a checkpoint holds the queue beside the weights", 4
    )
    worker_mtbf_seconds: Positive | None = _setting(None, "mean time between failures of one slot", 4)

    def __init__(self, **fields: Unpack[Settings]) -> None:
        if fields.get("batch_groups") is not None:
            # Batches are counted in one way: the other default steps back, a given value is refused below.
            fields.setdefault("batch_tokens", None)
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise_config_error(error, type(self).model_fields)
        found = contradictions(self)
        if found:
            raise ConfigError(*found)

    # The preset that the rules come from, and the fields and knobs given with it.
    _preset: tuple[str, dict[str, Any]] | None = PrivateAttr(default=None)
    _rebuild: Callable[..., PipelineConfig] | None = PrivateAttr(default=None)
    _lag_bound: int | None = PrivateAttr(default=None)

    def remember_preset(
        self,
        name: str,
        fields: Mapping[str, Any],
        rebuild: Callable[..., PipelineConfig],
        lag_bound: int | None = None,
    ) -> None:
        """Keep the preset that the rules came from, what makes them again, and a proved bound of the lag."""
        self._preset, self._rebuild = (name, mapping_of("fields", fields, "Give field names.")), rebuild
        self._lag_bound = None if lag_bound is None else checked(WholeNumber, "lag_bound", lag_bound, low=0)

    @property
    def preset(self) -> tuple[str, dict[str, Any]] | None:
        """The preset that this configuration was built from, with the fields and knobs given to it."""
        return self._preset

    @property
    def lag_bound_of_preset(self) -> int | None:
        """The largest lag in versions that the rules of its preset are proved to let through, if one is."""
        return self._lag_bound

    def __eq__(self, other: object) -> bool:
        # The settings alone: where they come from does not make two configurations different.
        return isinstance(other, PipelineConfig) and self.__dict__ == other.__dict__

    def replace(self, **changes: Unpack[PresetSettings]) -> PipelineConfig:
        """Return a checked copy with some fields changed.

        A configuration built from a preset is built again, so that its rules follow the change.

        Raises
        ------
        ConfigError
            As for a new configuration.
        """
        if self._preset is not None and self._rebuild is not None:
            name, fields = self._preset
            return self._rebuild(name, **{**fields, **changes})
        if changes.get("batch_groups") is not None and "batch_tokens" not in self.model_fields_set:
            changes.setdefault("batch_tokens", None)
        kept: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**(kept | {**changes}))

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """Return the settings as plain data (for TOML or JSON): those that differ from the defaults, or all.

        Examples
        --------
        >>> PipelineConfig(max_policy_lag=4).to_dict()
        {'max_policy_lag': 4}
        """
        plain = self.model_dump(mode="python")
        plain["limits"] = [limit.model_dump() for limit in self.limits]
        if flag_of("full", full):
            return plain
        defaults = _defaults()
        return {
            name: value
            for name, value in plain.items()
            if getattr(self, name) != defaults[name] or (name == "mode" and value != "bounded_async")
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> PipelineConfig:
        """Build a configuration from plain data, as :meth:`to_dict` gives.

        Raises
        ------
        ConfigError
            As for a new configuration.
        """
        if not isinstance(plain, dict) or not all(isinstance(name, str) for name in plain):
            raise ConfigError("config", "must map field names to values", plain, "Give a dict.")
        return cls(**plain)

    @property
    def options_in_use(self) -> frozenset[str]:
        """The options that bring metrics and causes of their own, by the names of the table of metrics.

        Examples
        --------
        >>> sorted(PipelineConfig(fetch_seconds=2).options_in_use)
        ['fetch']
        """
        uses = {
            "hold": self.queue_overflow == "hold",
            "fetch": self.fetch_seconds > 0,
            "evaluation": self.evaluation_every_updates is not None,
            "engine": self.engine is not None,
            "failures": self.has_failures,
        }
        return frozenset(name for name, used in uses.items() if used)

    @property
    def has_failures(self) -> bool:
        """Whether the trainer or a worker fails, or checkpoints are written."""
        given = (self.trainer_mtbf_seconds, self.checkpoint_every_updates, self.worker_mtbf_seconds)
        return any(value is not None for value in given)

    @property
    def lone_decode_seconds(self) -> float:
        """What a rollout of the mean length takes to decode by itself."""
        engine, tokens = self.engine, self.response_length.mean_tokens
        if engine is None:
            return tokens / self.decode_tokens_per_second
        return tokens * (engine.step_seconds + engine.step_seconds_per_rollout)

    @property
    def is_level_1(self) -> bool:
        """Whether every option of levels 2 to 4 is at its default; pairs and schedules belong to level 2."""
        law, (values_of, defaults) = self.response_length, _higher_levels()
        return law.paired_seconds is None and not law.segments and values_of(self) == defaults


_DEFAULTS: dict[str, Any] = {}


def _defaults() -> dict[str, Any]:
    if not _DEFAULTS:
        fields = PipelineConfig.model_fields
        _DEFAULTS.update(
            {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        )
    return _DEFAULTS


@cache
def _higher_levels() -> tuple[Callable[[PipelineConfig], tuple[Any, ...]], tuple[Any, ...]]:
    """Return what reads the fields above level 1, and their defaults: a sweep asks for each of its cells."""
    fields = PipelineConfig.model_fields.items()
    names = [name for name, field in fields if field_level(name, field) > 1]
    return attrgetter(*names), tuple(_defaults()[name] for name in names)


def field_level(name: str, field: Any = None) -> int:
    """Tell which level of the model a field belongs to (1 to 4)."""
    return level_of(field or PipelineConfig.model_fields[name])


show_fields(PipelineConfig)
