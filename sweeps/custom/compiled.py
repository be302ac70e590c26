"""Rules that are compiled: a function of Numba is called by the loop, without Python in between.

The function is handed the record that Python rules get as a named tuple, with the same names. Each function
has a driver of its own, compiled once in a process: the loop, and the answer to its question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...kernels.pipeline import records
from ...kernels.pipeline.general import _advance_general_kernel
from .rules import is_compiled

if TYPE_CHECKING:
    from .custom import Custom

ASKS_ADMISSION, ASKS_LENGTH = records.ASKS_ADMISSION, records.ASKS_LENGTH
OUT_OF_BUDGET = records.OUT_OF_BUDGET


def driver_of(custom: Custom) -> Callable[..., int]:
    """Return what advances a run until a question is left for Python; the loop itself where all are."""
    admission = custom.admission if is_compiled(custom.admission) else None
    length = custom.length if is_compiled(custom.length) else None
    if admission is None and length is None:
        kernel: Callable[..., int] = _advance_general_kernel
        return kernel
    return _driver(admission, length)


@lru_cache(maxsize=32)
def _driver(admission: Any, length: Any) -> Callable[..., int]:
    import numba

    answers_admission, answers_length = admission is not None, length is not None
    admits = admission if answers_admission else _leave
    tokens_of = length if answers_length else _leave

    @numba.njit(nogil=True)
    def drive(parameters, seed, until, budget, tables, draws, arrays, failures):
        state = arrays.state[0]
        asked = arrays.asked[0]
        last = state.cost + budget
        while True:
            left = last - state.cost
            if left <= 0 and state.settling != 2:
                return OUT_OF_BUDGET
            status = _advance_general_kernel(parameters, seed, until, left, tables, draws, arrays, failures)
            if answers_admission and status == ASKS_ADMISSION:
                asked.answer = 1 if admits(arrays.admission_state[0]) else 0
            elif answers_length and status == ASKS_LENGTH:
                tokens = tokens_of(arrays.rollout_start[0])
                asked.answer = tokens
                if tokens < 1 or tokens > parameters[0].law_maximum:
                    return status
            else:
                return status

    return drive


def _leave(state: Any) -> int:  # never called
    return 0
