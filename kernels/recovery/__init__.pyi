from .cost import (
    checkpoint_availability as checkpoint_availability,
    expected_overhead_fraction as expected_overhead_fraction,
    expected_run_seconds as expected_run_seconds,
)
from .interval import (
    CheckpointCadence as CheckpointCadence,
    checkpoint_cadence as checkpoint_cadence,
    optimal_checkpoint_interval as optimal_checkpoint_interval,
)
from .mtbf import (
    MtbfEstimate as MtbfEstimate,
    mtbf_estimate as mtbf_estimate,
    scale_mtbf_seconds as scale_mtbf_seconds,
)
from .multilevel import (
    MultilevelCheckpoints as MultilevelCheckpoints,
    multilevel_checkpoints as multilevel_checkpoints,
)
