from .drift import (
    drift_from_clip_fraction as drift_from_clip_fraction,
    drift_from_ess as drift_from_ess,
    drift_from_kl as drift_from_kl,
    sequence_drift as sequence_drift,
)
from .ess import (
    EssReport as EssReport,
    effective_sample_size as effective_sample_size,
    ess_report as ess_report,
    expected_normalized_ess as expected_normalized_ess,
)
from .ess_levels import rollout_ess as rollout_ess, sequence_log_weights as sequence_log_weights
from .importance_weights import (
    SequenceWeights as SequenceWeights,
    sequence_importance_weights as sequence_importance_weights,
    token_importance_weights as token_importance_weights,
)
from .lag import (
    LagSummary as LagSummary,
    lag_counts as lag_counts,
    lag_quantiles as lag_quantiles,
    lag_quantiles_from_counts as lag_quantiles_from_counts,
    lag_summary as lag_summary,
    policy_lag as policy_lag,
    sequence_lag as sequence_lag,
    within_lag as within_lag,
)
from .off_policy import OffPolicyReport as OffPolicyReport, off_policy_report as off_policy_report
from .pareto_k import ParetoReport as ParetoReport, pareto_khat as pareto_khat
from .ragged import offsets_from_lengths as offsets_from_lengths
