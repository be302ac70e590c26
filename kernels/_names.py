"""Where each public function of ``lagsweep.kernels`` lives: name -> module, loaded on first use."""

from __future__ import annotations

_BY_MODULE: dict[str, tuple[str, ...]] = {
    "memory": ("BYTES_PER_GIB", "human_bytes", "model_state_bytes", "ideal_sharded_memory", "peak_memory"),
    "kv_cache": ("kv_cache_bytes",),
    "overlap": ("pipeline_report", "straggler_report"),
    "weight_sync": ("synchronization_transfer_time", "synchronization_schedule"),
    "checkpoint_interval": ("optimal_checkpoint_interval", "checkpoint_cadence"),
    "ess": ("effective_sample_size", "ess_report", "expected_normalized_ess"),
    "ess_levels": ("rollout_ess", "sequence_log_weights"),
    "importance_weights": ("token_importance_weights", "sequence_importance_weights"),
    "off_policy": ("off_policy_report",),
    "pareto_k": ("pareto_khat",),
    "ragged": ("offsets_from_lengths",),
    "lag": (
        "lag_counts",
        "lag_quantiles",
        "lag_quantiles_from_counts",
        "lag_summary",
        "policy_lag",
        "sequence_lag",
        "within_lag",
    ),
    "masks": ("completion_token_mask",),
    "contract": ("rollout_contract_errors",),
}

KERNEL_NAMES: dict[str, str] = {
    name: f"lagsweep.kernels.{module}" for module, names in _BY_MODULE.items() for name in names
}
