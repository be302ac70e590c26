"""Model shapes by name, shipped with their sources, or from a user's own ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ...kernels.memory.parameters import parameter_count
from ...kernels.memory.shapes import ExpertShape, LatentShape, ModelShape
from ..user_files import decoded, parse_json, read_bytes
from .hf_config import shape_from_config

_FILE = files("lagsweep.sweeps.memory") / "model_data" / "shapes.json"


@dataclass(frozen=True)
class ModelRecord:
    """A model's shape and where it is from.

    ``published_parameters`` is a total with a source outside this package; None where there is none, and the
    count from the shape is then all there is.
    """

    shape: ModelShape
    sources: tuple[str, ...]
    weights: str = "bf16"
    published_parameters: int | None = None
    published_parameters_source: str | None = None

    @property
    def parameters_label(self) -> str:
        """Say whether the parameter count has a source of its own: ``published`` or ``computed``."""
        return "computed" if self.published_parameters is None else "published"


@cache
def shipped_models() -> dict[str, ModelRecord]:
    """Load the shipped shapes, by name.

    Examples
    --------
    >>> shipped_models()["Qwen3-8B"].shape.num_layers
    36
    """
    entries = json.loads(_FILE.read_text(encoding="utf-8"))
    return {name: _record(name, entry) for name, entry in entries.items()}


def _record(name: str, entry: dict[str, Any]) -> ModelRecord:
    numbers = dict(entry["shape"])
    experts, latent = numbers.pop("experts", None), numbers.pop("latent", None)
    shape = ModelShape(
        name=name,
        **numbers,
        experts=ExpertShape(**experts) if experts else None,
        latent=LatentShape(**latent) if latent else None,
    )
    return ModelRecord(
        shape,
        tuple(entry["sources"]),
        entry["weights"],
        entry.get("published_parameters"),
        entry.get("published_parameters_source"),
    )


def _read_config(path: Path) -> ModelRecord:
    file = path / "config.json" if path.is_dir() else path
    content = read_bytes(file, "model", rule="must be readable ({reason})")
    text = decoded(content, "model", str(file))
    config = parse_json(text, "model", str(file), "Give the model's config.json.")
    name = file.parent.name if file.name == "config.json" else file.stem
    return ModelRecord(shape_from_config(config, name or "config.json", file.name), (str(file),))


def load_model(name_or_path: str | Path) -> ModelRecord:
    """Find a model by name, or read its ``config.json``.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped name in any case, with or without its organisation (``Qwen/Qwen3-8B``); or a path to a
        ``config.json``, or to the folder that holds one.

    Returns
    -------
    ModelRecord
        The shape and its sources.

    Raises
    ------
    ConfigError
        No such model; the message names the nearest one. A file that cannot be read.

    Examples
    --------
    >>> load_model("Qwen/Qwen3-8B").published_parameters
    8190735360
    """
    models = shipped_models()
    text = str(name_or_path)
    by_lower = {name.lower(): name for name in models}
    found = by_lower.get(text.lower()) or by_lower.get(text.rpartition("/")[2].lower())
    path = Path(text)
    # A path that exists is meant; a bare name is the shipped model even beside a folder of that name.
    if path.suffix == ".json" or (path.exists() and (found is None or len(path.parts) > 1)):
        return _read_config(path)
    if found is None:
        hint = nearest(text.rpartition("/")[2].lower(), by_lower)
        close = next((f"Did you mean {name!r}?" for low, name in by_lower.items() if repr(low) in hint), "")
        way_out = f"{close} Known are {', '.join(models)}; or give a path to a config.json.".strip()
        raise ConfigError("model", "must be a known name or a path", text, way_out)
    return models[found]


def model_rows() -> list[dict[str, Any]]:
    """List the shipped models with their parameters, for a table."""
    rows = []
    for name, record in shipped_models().items():
        counted = parameter_count(record.shape)
        rows.append(
            {
                "model": name,
                "parameters": counted.total,
                "active_parameters": counted.active,
                "parameters_label": record.parameters_label,
                "layers": record.shape.num_layers,
                "kv_heads": record.shape.num_kv_heads,
                "weights": record.weights,
                "sources": list(record.sources),
                "parameters_source": record.published_parameters_source,
            }
        )
    return rows
