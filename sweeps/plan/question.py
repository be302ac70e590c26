"""What a plan is asked: a model, cards, a workload, and the settings to choose among; checked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...kernels._arguments import listed
from ...kernels.errors import NO_VALUE, ConfigError
from ..checks import RealNumber, WholeNumber, checked, flag_of, text_of
from ..config.config import as_drift_law
from ..engines.accelerators import Accelerator, load_accelerator
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw
from ..laws.shipped import shipped_index
from ..memory.models import ModelRecord, load_model
from ..presets.systems import SystemLabel, checked_label
from .inputs import Input, colocated_inputs, engine_inputs, given_inputs, trainer_inputs
from .measured import MeasuredEngine, load_measured, measured_inputs
from .networks import Network, load_network

DRIFT_PER_VERSION = 0.2  # where nothing is said

COLOCATED = "colocated"
DEFAULT_SYSTEMS = (COLOCATED, "synchronous", "verl_one_step_off")
DEFAULT_LAGS = (1, 2, 4)
DEFAULT_CAPS = (64, 128, 256, 512)
DEFAULT_CADENCES = (1, 2)
_LIMIT = "skyrl:max_staleness_steps={}"  # a lag limit and nothing else
_EXAMPLES = ("aime-rl-1000", "aime-rl-100", "mooncake-conversation")
_EIGHTHS = 8
_MOST = 2**20
_MOST_ROLLOUTS = 2**20


@dataclass(frozen=True, kw_only=True)
class Question:
    """A checked question; :func:`ask` builds it. `law` is `law_asked`, cut at `max_tokens`."""

    model: ModelRecord
    accelerator: Accelerator
    network: Network
    gpus: int
    gpus_per_node: int
    prompts: int
    group_size: int
    law: LengthLaw
    law_asked: LengthLaw
    prompt_tokens: int
    max_tokens: int
    rollout_gpus: tuple[int, ...]
    tensor_parallel: tuple[int, ...]
    systems: tuple[str, ...]
    caps: tuple[int, ...]
    cadences: tuple[int, ...]
    forward_passes: int
    optimizer_steps: int
    reference_model: bool
    engine_format: str
    cache_format: str
    utilization: float
    drift_per_version: float
    drift: DriftLaw | None
    price: float | None
    inputs: tuple[Input, ...]
    measured: MeasuredEngine | None

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of the longest rollout that an engine must hold."""
        return self.prompt_tokens + self.max_tokens

    @property
    def cut_share(self) -> float:
        """The share of the law's answers that `max_tokens` cuts."""
        return share_beyond(self.law_asked, self.max_tokens)

    def values(self) -> dict[str, float]:
        """Return the inputs' defaults by name."""
        return {one.name: one.value for one in self.inputs}


def ask(
    *,
    model: str | Path,
    accelerator: str | Path | Accelerator,
    gpus: int,
    prompts: int,
    group_size: int,
    law: LengthLaw | Mapping[str, Any] | None,
    prompt_tokens: int,
    max_tokens: int,
    rollout_gpus: Iterable[int] | None = None,
    tensor_parallel: Iterable[int] | None = None,
    systems: Iterable[str] | None = None,
    max_lags: Iterable[int] | None = None,
    caps: Iterable[int] | None = None,
    cadences: Iterable[int] | None = None,
    network: str | Path | Network | None = None,
    gpus_per_node: int = 8,
    forward_passes: int = 1,
    optimizer_steps: int = 1,
    reference_model: bool = False,
    engine_format: str = "bf16",
    cache_format: str = "bf16",
    utilization: float = 0.9,
    drift_per_version: float = DRIFT_PER_VERSION,
    drift: DriftLaw | Mapping[str, Any] | None = None,
    price: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    measured: str | Path | None = None,
) -> Question:
    """Check a question and fill in what was left out; arguments as :func:`.plan.plan`.

    Raises
    ------
    ConfigError
        For a model, card, law or number that is none.
    """
    record = load_model(_name("model", model, "Name a shipped model, or a path to a config.json."))
    card = accelerator if isinstance(accelerator, Accelerator) else load_accelerator(accelerator)
    count = _whole("gpus", gpus, low=2)
    node = _whole("gpus_per_node", gpus_per_node)
    usual_way = _usual_network(count, node) if network is None else network
    way = usual_way if isinstance(usual_way, Network) else load_network(usual_way)
    answers = _whole("max_tokens", max_tokens)
    engine = None if measured is None else load_measured(measured)
    _check_batch(prompts, group_size)
    ranks = _ranks(record, tensor_parallel, node, engine)
    rules = _systems(systems, max_lags)
    usual = [
        *(engine_inputs(record.shape) if engine is None else measured_inputs(engine)),
        *trainer_inputs(record.shape, card, way),
        *(colocated_inputs() if COLOCATED in rules else []),
    ]
    asked = checked_law(law)
    return Question(
        model=record,
        accelerator=card,
        network=way,
        gpus=count,
        gpus_per_node=node,
        prompts=_whole("prompts", prompts),
        group_size=_whole("group_size", group_size),
        law=cut_law(asked, answers),
        law_asked=asked,
        prompt_tokens=_whole("prompt_tokens", prompt_tokens, low=0),
        max_tokens=answers,
        rollout_gpus=_splits(rollout_gpus, count),
        tensor_parallel=ranks,
        systems=rules,
        caps=_numbers("caps", caps, DEFAULT_CAPS),
        cadences=_numbers("cadences", cadences, DEFAULT_CADENCES),
        forward_passes=checked(WholeNumber, "forward_passes", forward_passes, low=0, high=4),
        optimizer_steps=_whole("optimizer_steps", optimizer_steps),
        reference_model=flag_of("reference_model", reference_model),
        engine_format=engine_format,
        cache_format=cache_format,
        utilization=_share("utilization", utilization),
        drift_per_version=checked(RealNumber, "drift_per_version", drift_per_version, low=0, high=10),
        drift=_measured_drift(drift, drift_per_version),
        price=None if price is None else checked(RealNumber, "price", price, low=0),
        inputs=tuple(given_inputs(usual, inputs)),
        measured=engine,
    )


def checked_law(law: Any) -> LengthLaw:
    """Return a law; without one, name three that are shipped.

    Raises
    ------
    ConfigError
        If there is none, or something else.
    """
    if law is None:
        named = ", ".join(f"{name} (mean {LengthLaw.shipped(name).mean_tokens:,.0f})" for name in _EXAMPLES)
        assert set(_EXAMPLES) <= set(shipped_index())
        way_out = f"Lengths decide a plan. Shipped, by mean tokens: {named}; give shipped:NAME, or your own."
        raise ConfigError("law", "is required", NO_VALUE, way_out)
    if isinstance(law, LengthLaw):
        return law
    if isinstance(law, Mapping):
        return LengthLaw.from_dict(law)
    raise ConfigError("law", "must be a length law", law, "Build one, as LengthLaw.shipped('aime-rl-1000').")


def cut_law(law: LengthLaw, max_tokens: int) -> LengthLaw:
    """Cut a law at the longest answer that the engines allow.

    Raises
    ------
    ConfigError
        For a law by version, whose parts are cut one by one.

    Examples
    --------
    >>> cut_law(LengthLaw.uniform(1, 100), 50).mean_tokens
    37.75
    """
    if law.maximum <= max_tokens:
        return law
    if law.segments or law.brings_seconds:
        way_out = "Give a law whose longest answer is max_tokens."
        raise ConfigError("law", f"must not go beyond max_tokens, {max_tokens:,}", law.maximum, way_out)
    if max_tokens < law.minimum:
        return LengthLaw.fixed(max_tokens)
    if law.group_tokens is not None and law.group_of_row is not None:
        tokens = law.group_tokens.clip(max=max_tokens)
        return LengthLaw.grouped(tokens.tolist(), law.group_of_row.tolist())
    table = law.cdf[: max_tokens - law.minimum + 1].copy()
    table[-1] = 1.0
    return LengthLaw.from_table(law.minimum, table.tolist(), cut_at_maximum=True)


def _measured_drift(given: Any, drift_per_version: float) -> DriftLaw | None:
    law = as_drift_law(dict(given) if isinstance(given, Mapping) else given)
    if law is not None and drift_per_version != DRIFT_PER_VERSION:
        rule, way_out = "must be left out beside drift, which takes its place", "Leave out one of the two."
        raise ConfigError("drift_per_version", rule, drift_per_version, way_out)
    return law


def share_beyond(law: LengthLaw, tokens: int) -> float:
    """Return the share of a law's lengths that are above some tokens.

    Examples
    --------
    >>> share_beyond(LengthLaw.uniform(1, 100), 50), share_beyond(LengthLaw.fixed(7), 7)
    (0.5, 0.0)
    """
    if law.maximum <= tokens:
        return 0.0
    if law.group_tokens is not None and law.group_of_row is not None:
        return float((law.group_tokens > tokens).mean())
    return 1.0 if tokens < law.minimum else float(1 - law.cdf[tokens - law.minimum])


def _check_batch(prompts: Any, group_size: Any) -> None:
    rollouts = _whole("prompts", prompts) * _whole("group_size", group_size)
    if rollouts > _MOST_ROLLOUTS:
        rule = f"times group_size must be at most {_MOST_ROLLOUTS:,} answers an update"
        raise ConfigError("prompts", rule, prompts, "Plan a part of it on a part of the GPUs.")


def _usual_network(gpus: int, node: int) -> str:
    return "one-node" if gpus <= node else "across-nodes"


def _ranks(
    record: ModelRecord, given: Iterable[int] | None, node: int, engine: MeasuredEngine | None
) -> tuple[int, ...]:
    """Return the sizes of engines to try; a measured engine has one."""
    shape = record.shape
    usual = [ranks for ranks in (1, 2, 4, 8) if ranks <= node and shape.num_heads % ranks == 0]
    if engine is not None and engine.tensor_parallel is not None:
        usual = [engine.tensor_parallel]
    found = _numbers("tensor_parallel", given, usual)
    if engine is not None and (len(found) > 1 or engine.tensor_parallel not in (None, found[0])):
        rule = "must be the one size of the measured engine"
        said = engine.tensor_parallel or "not in its file"
        raise ConfigError("tensor_parallel", rule, list(found), f"Of the engine it is {said}.")
    return found


def _splits(given: Iterable[int] | None, gpus: int) -> tuple[int, ...]:
    usual = sorted({round(gpus * part / _EIGHTHS) for part in range(1, _EIGHTHS)} - {0, gpus})
    found = _numbers("rollout_gpus", given, usual)
    for split in found:
        if split >= gpus:
            rule = f"must be below gpus, {gpus}: the trainer needs some"
            raise ConfigError("rollout_gpus", rule, split, "Colocated engines are a system of their own.")
    return found


def _systems(given: Iterable[str] | None, lags: Iterable[int] | None) -> tuple[str, ...]:
    """Return the rules to try as labels; a lag limit is one that admits that many batches ahead."""
    way_out = "Write ['colocated', 'areal:max_head_offpolicyness=2']."
    labels = list(DEFAULT_SYSTEMS) if given is None else listed("systems", given, way_out)
    numbers = DEFAULT_LAGS if lags is None and given is None else _numbers("max_lags", lags, (), low=0)
    found = [one if one == COLOCATED else checked_label(one, "systems") for one in labels]
    found += [SystemLabel(_LIMIT.format(lag)) for lag in numbers]
    if not found:
        raise ConfigError("systems", "must be at least one", NO_VALUE, "Name systems or lag limits.")
    return tuple(dict.fromkeys(found))


def _numbers(
    field: str, given: Iterable[int] | None, usual: Iterable[int], *, low: int = 1
) -> tuple[int, ...]:
    if given is None:
        return tuple(usual)
    values = listed(field, given, "Give a list of whole numbers.")
    if not values:
        raise ConfigError(field, "must have at least one value", NO_VALUE, "Give some, or leave it out.")
    return tuple(sorted({_whole(field, value, low=low) for value in values}))


def _whole(field: str, value: Any, *, low: int = 1) -> int:
    number: int = checked(WholeNumber, field, value, low=low, high=_MOST)
    return number


def _share(field: str, value: Any) -> float:
    share: float = checked(RealNumber, field, value, low=0, high=1, rule="must be between 0 and 1")
    if share == 0:
        raise ConfigError(field, "must be above 0", value, "vLLM's default is 0.9.")
    return share


def _name(field: str, value: Any, way_out: str) -> str | Path:
    return value if isinstance(value, Path) else text_of(field, value, way_out)
