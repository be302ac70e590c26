from .makespan import PipelineMakespan as PipelineMakespan, pipeline_makespan as pipeline_makespan
from .overlap import (
    PipelineReport as PipelineReport,
    StragglerReport as StragglerReport,
    pipeline_report as pipeline_report,
    straggler_report as straggler_report,
)
from .stragglers import (
    GroupUtilization as GroupUtilization,
    expected_maximum as expected_maximum,
    expected_maximum_exponential as expected_maximum_exponential,
    expected_maximum_lognormal as expected_maximum_lognormal,
    expected_maximum_normal as expected_maximum_normal,
    expected_maximum_uniform as expected_maximum_uniform,
    group_utilization as group_utilization,
)
