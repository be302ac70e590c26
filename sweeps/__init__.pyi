from .checkpoint.checkpoint import (
    checkpoint_as_dict as checkpoint_as_dict,
    make_checkpoint as make_checkpoint,
)
from .checkpoint.drill import recovery_drill as recovery_drill
from .config.config import PipelineConfig as PipelineConfig
from .runs.simulate import result_row as result_row, simulate_pipeline as simulate_pipeline
