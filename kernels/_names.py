"""Where each public function of ``lagsweep.kernels`` lives: name -> module, loaded on first use."""

from __future__ import annotations

_BY_MODULE: dict[str, tuple[str, ...]] = {
    "memory": ("BYTES_PER_GIB", "human_bytes", "model_state_bytes", "ideal_sharded_memory", "peak_memory"),
    "kv_cache": ("kv_cache_bytes",),
    "overlap": ("pipeline_report", "straggler_report"),
    "weight_sync": ("synchronization_transfer_time", "synchronization_schedule"),
    "checkpoint_interval": ("optimal_checkpoint_interval", "checkpoint_cadence"),
    "ess": ("effective_sample_size",),
    "lag": ("lag_counts", "lag_quantiles"),
    "masks": ("completion_token_mask",),
    "contract": ("rollout_contract_errors",),
}

KERNEL_NAMES: dict[str, str] = {
    name: f"lagsweep.kernels.{module}" for module, names in _BY_MODULE.items() for name in names
}
