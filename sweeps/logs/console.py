"""Text of consoles as records: verl's ``step:N - name:value`` lines, dictionaries, NeMo RL's bullet lists."""

from __future__ import annotations

import ast
import re
from typing import Any

from ...kernels.errors import NO_VALUE, ConfigError

_VERL = re.compile(r"step:(\d+) - (.*)")
_VERL_PAIR = re.compile(r"^([^\s:]+):(\S+)$")
_NEMO_STEP = re.compile(r"=+\s*Step (\d+)/\d+\s*=+")
_NEMO_LINE = re.compile(r"^\s*[•-]\s*([^:]+):\s*([-+.\d,eE]+)s?\s*(?:\([-\d.]+%\))?\s*$")
_NUMBERED = re.compile(r"(?:perf|rollout|step|train)\s+(\d+):\s*(\{.*\})")
_PRIME = re.compile(r"\bStep (\d+) \| (.+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PRIME_NAMES = {"time": "time/step", "throughput": "perf/throughput", "seq. length": "seq_len/mean"}
_WRAPPED = re.compile(r"(?:np\.|numpy\.)?(?:float\d+|int\d+|tensor)\(([^()]*)\)")


def console_records(text: str, name: str) -> list[dict[str, Any]]:
    """Turn a console's text into records, a step or a dictionary each.

    Parameters
    ----------
    text : str
    name : str
        The file's, for the message.

    Raises
    ------
    ConfigError
        If no line is of a known form.

    Examples
    --------
    >>> console_records("(main pid=0) step:3 - timing_s/gen:5.5 - timing_s/step:np.float64(9.0)", "a.log")
    [{'step': '3', 'timing_s/gen': '5.5', 'timing_s/step': 'np.float64(9.0)'}]
    """
    records: list[dict[str, Any]] = []
    block: dict[str, Any] | None = None
    for line in text.splitlines():
        line = _ANSI.sub("", line)
        if found := _VERL.search(line):
            records.append(_verl(found))
        elif found := _NEMO_STEP.search(line):
            block = {"step": found[1]}
            records.append(block)
        elif found := _NUMBERED.search(line):
            if record := _dictionary(found[2]):
                records.append({"step": int(found[1]), **record})
        elif (found := _PRIME.search(line)) and (record := _bars(found[2])):
            records.append({"step": found[1], **record})
        elif block is not None and (found := _NEMO_LINE.match(line)):
            block.setdefault(found[1].strip(), found[2])
        elif line.lstrip().startswith("{") and (record := _dictionary(line.strip())):
            records.append(record)
    if not any(len(record) > 1 for record in records):
        rule = "has no line of a step that is known (verl, NeMo RL, prime-rl, slime, TRL)"
        raise ConfigError(name, rule, NO_VALUE, "Give the metrics as CSV or JSON lines.")
    return records


def _verl(found: re.Match[str]) -> dict[str, Any]:
    pairs = (_VERL_PAIR.match(part.strip()) for part in found[2].split(" - "))
    return {"step": found[1], **{pair[1]: pair[2] for pair in pairs if pair}}


def _bars(text: str) -> dict[str, Any]:
    """Read ``Time: 5.3s | Throughput: 100 tokens/s``."""
    record = {}
    for part in text.split("|"):
        name, colon, value = part.partition(":")
        number = re.match(r"\s*([-+.\d,eE]+)", value)
        if colon and number:
            name = name.strip()
            record[_PRIME_NAMES.get(name.lower(), name)] = number[1]
    return record


def _dictionary(text: str) -> dict[str, Any]:
    """Read a Python dictionary of plain values; nothing if it is none."""
    try:
        record = ast.literal_eval(_WRAPPED.sub(r"\1", re.sub(r"\bnan\b", "None", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {str(name): value for name, value in record.items() if isinstance(value, str | int | float)}
