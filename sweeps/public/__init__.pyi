from . import custom as custom, errors as errors, kernels as kernels, testing as testing
from .kernels.errors import (
    CheckpointError as CheckpointError,
    ConfigError as ConfigError,
    ContractError as ContractError,
    Finding as Finding,
    LagsweepError as LagsweepError,
    StoreError as StoreError,
)
from .sweeps.charts.plots import (
    plot_frontier as plot_frontier,
    plot_heatmap as plot_heatmap,
    plot_lag as plot_lag,
    plot_timeline as plot_timeline,
)
from .sweeps.calibrate.calibrate import calibrate as calibrate
from .sweeps.calibrate.calibration import Calibration as Calibration
from .sweeps.calibrate.simulated_log import step_log_of as step_log_of
from .sweeps.calibrate.what_if import WhatIf as WhatIf, what_if as what_if
from .sweeps.checkpoint.checkpoint import (
    checkpoint_as_dict as checkpoint_as_dict,
    make_checkpoint as make_checkpoint,
    restore_python_random as restore_python_random,
    restore_rng as restore_rng,
)
from .sweeps.checkpoint.drill import RecoveryDrill as RecoveryDrill, recovery_drill as recovery_drill
from .sweeps.checkpoint.files import (
    CheckpointWarning as CheckpointWarning,
    LatestCheckpoint as LatestCheckpoint,
    latest_checkpoint as latest_checkpoint,
    load_checkpoint as load_checkpoint,
    save_checkpoint as save_checkpoint,
)
from .sweeps.checkpoint.manifest import Manifest as Manifest
from .sweeps.checkpoint.prompts import PromptCursor as PromptCursor
from .sweeps.checkpoint.simulation import (
    restore_simulation as restore_simulation,
    simulation_checkpoint as simulation_checkpoint,
    simulation_components as simulation_components,
)
from .sweeps.compare.rows import comparison_rows as comparison_rows
from .sweeps.compare.systems import (
    System as System,
    compare_systems as compare_systems,
    compared_systems as compared_systems,
)
from .sweeps.config.config import Limit as Limit, PipelineConfig as PipelineConfig
from .sweeps.config.engine import Engine as Engine
from .sweeps.engines.accelerators import Accelerator as Accelerator, load_accelerator as load_accelerator
from .sweeps.engines.engine_fit import EngineFit as EngineFit
from .sweeps.engines.fit import fit_engine as fit_engine
from .sweeps.engines.requests import Requests as Requests, read_requests as read_requests
from .sweeps.engines.stages import Stages as Stages, read_stages as read_stages
from .sweeps.custom.simulate import simulate_custom as simulate_custom
from .sweeps.execute.progress import Progress as Progress
from .sweeps.laws.drift import DriftLaw as DriftLaw
from .sweeps.gate.decisions import (
    Finish as Finish,
    GateCounts as GateCounts,
    Pop as Pop,
    Published as Published,
    Start as Start,
    TakenGroup as TakenGroup,
    Trained as Trained,
)
from .sweeps.gate.gate import RolloutGate as RolloutGate
from .sweeps.laws.lengths import LengthLaw as LengthLaw
from .sweeps.laws.seconds import SecondsLaw as SecondsLaw
from .sweeps.logs.engine_log import EngineLog as EngineLog, read_engine_log as read_engine_log
from .sweeps.logs.engine_samples_fit import (
    EngineSamplesFit as EngineSamplesFit,
    fit_engine_samples as fit_engine_samples,
)
from .sweeps.logs.step_log import StepLog as StepLog, read_step_log as read_step_log
from .sweeps.pages.engine import write_engine_page as write_engine_page
from .sweeps.pages.plan import write_plan_page as write_plan_page
from .sweeps.pages.report import Report as Report, write_report as write_report
from .sweeps.pages.sensitivity import write_sensitivity_page as write_sensitivity_page
from .sweeps.plan.networks import Network as Network, load_network as load_network
from .sweeps.plan.answered import Plan as Plan
from .sweeps.plan.plan import plan as plan
from .sweeps.presets.base import Knob as Knob, Preset as Preset
from .sweeps.presets.registry import (
    all_presets as all_presets,
    preset_bound_kind as preset_bound_kind,
    preset_config as preset_config,
    preset_lag_bound as preset_lag_bound,
)
from .sweeps.recommend.recommend import Recommendation as Recommendation, recommend as recommend
from .sweeps.records.check import RecordReport as RecordReport, validate_records as validate_records
from .sweeps.records.files import read_records as read_records
from .sweeps.results.cell_table import cells_frame as cells_frame
from .sweeps.results.frontier import (
    Frontier as Frontier,
    PairedDifference as PairedDifference,
    frontier as frontier,
    paired_difference as paired_difference,
)
from .sweeps.results.token_versions import token_version_ess as token_version_ess
from .sweeps.runs.diagnosis import (
    PhaseBounds as PhaseBounds,
    constraint_intervals as constraint_intervals,
    explain_stall as explain_stall,
    length_bias as length_bias,
    length_quantiles as length_quantiles,
    phase_bounds as phase_bounds,
)
from .sweeps.runs.many import Cancelled as Cancelled
from .sweeps.runs.result import PipelineResult as PipelineResult, Row as Row
from .sweeps.runs.engines import EngineResult as EngineResult, simulate_engine as simulate_engine
from .sweeps.runs.simulate import (
    advance_run as advance_run,
    finish_run as finish_run,
    result_row as result_row,
    simulate_pipeline as simulate_pipeline,
    start_run as start_run,
)
from .sweeps.search.result import SearchResult as SearchResult
from .sweeps.search.search import search as search
from .sweeps.search.sensitivity import Sensitivity as Sensitivity, sensitivity as sensitivity
from .sweeps.spec.carried import config_at as config_at
from .sweeps.spec.spec import SweepSpec as SweepSpec
from .sweeps.store.map_runs import map_runs as map_runs
from .sweeps.store.store import open_sweep as open_sweep, read_table as read_table
from .sweeps.sweep.merge import merge_stores as merge_stores
from .sweeps.store.verify import VerifyReport as VerifyReport, verify_store as verify_store
from .sweeps.sweep.run import load_spec as load_spec, run_spec as run_spec, run_sweep as run_sweep
from .sweeps.trace.trace import TraceFile as TraceFile, write_trace as write_trace

__version__: str
