"""What other numbers of GPUs would do to the two sides of a run.

Training on more GPUs is not faster in proportion. Two sizes tell ``c + d / GPUs``; one size does not, and
published pairs grew with exponents between 0.2 and 0.7, so the answer is a range. Of generation, the work
that rollouts share is divided by the GPUs, and the longest rollout alone is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...kernels.errors import ConfigError
from ..checks import RealNumber, checked
from .fits import Fit, above_zero

EXPONENTS = (0.2, 0.45, 0.7)  # low, what is taken, high: of eight published pairs, linear being 1
AXES = ("rollout_gpus", "trainer_gpus")


@dataclass(frozen=True)
class Gpus:
    """The GPUs of each side of a run.

    Attributes
    ----------
    rollout, trainer : float or None
        None where they were not given.
    sizes : tuple of (float, float)
        GPUs of the trainer and seconds of training with as many tokens, for this run and others.
    """

    rollout: float | None = None
    trainer: float | None = None
    sizes: tuple[tuple[float, float], ...] = ()

    @property
    def parts(self) -> tuple[float, float] | None:
        """Seconds that do not depend on the GPUs, and seconds times GPUs; None from a single size.

        Examples
        --------
        >>> tuple(round(part, 6) for part in Gpus(sizes=((32, 20.0), (64, 12.0))).parts)
        (4.0, 512.0)
        """
        if len({size for size, _ in self.sizes}) < 2:
            return None
        gpus, seconds = np.array(self.sizes).T
        fixed, divided = above_zero(np.column_stack([np.ones(len(gpus)), 1 / gpus])[None], seconds[None])[0]
        return float(fixed), float(divided)

    def training(self, gpus: float) -> tuple[float, float, float]:
        """Return by how much training on so many GPUs is longer: least, what is taken, most.

        Examples
        --------
        >>> Gpus(trainer=32, sizes=((32, 20.0), (64, 12.0))).training(128)
        (0.4, 0.4, 0.4)
        >>> [round(one, 2) for one in Gpus(trainer=32).training(64)]
        [0.62, 0.73, 0.87]
        """
        assert self.trainer is not None
        parts = self.parts
        if parts is not None:
            factor = (parts[0] + parts[1] / gpus) / (parts[0] + parts[1] / self.trainer)
            return (round(factor, 6),) * 3
        found = sorted((self.trainer / gpus) ** exponent for exponent in EXPONENTS)
        return found[0], (self.trainer / gpus) ** EXPONENTS[1], found[2]

    @property
    def fits(self) -> list[Fit]:
        """What two sizes tell."""
        parts = self.parts
        if parts is None:
            return []
        how, rows = "least squares over the sizes, both parts at least 0", len(self.sizes)
        return [
            Fit("training on any number of GPUs", parts[0], parts[0], parts[0], "s a step", rows, how),
            Fit("training that GPUs divide", parts[1], parts[1], parts[1], "GPU s a step", rows, how),
        ]


def gpus_of(rollout: object, trainer: object, sizes: Mapping[float, float], seconds: float) -> Gpus:
    """Check the GPUs of a run.

    Parameters
    ----------
    rollout, trainer : float or None
    sizes : mapping of float to float
        Seconds of training on other numbers of GPUs.
    seconds : float
        Those of this run.

    Raises
    ------
    ConfigError
        For numbers that are not above 0, or other sizes without this one's.
    """
    found = [
        None if one is None else checked(RealNumber, name, one, low=1e-6)
        for name, one in (("rollout_gpus", rollout), ("trainer_gpus", trainer))
    ]
    if not sizes:
        return Gpus(found[0], found[1])
    if found[1] is None:
        way_out = "Give the GPUs of this run's trainer: --trainer-gpus N."
        raise ConfigError("other_sizes", "need this run's own size", list(sizes), way_out)
    return Gpus(found[0], found[1], ((found[1], seconds), *sizes.items()))
