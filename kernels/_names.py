"""Where each public function of ``lagsweep.kernels`` lives: name -> module, loaded on first use."""

from __future__ import annotations

_BY_MODULE: dict[str, tuple[str, ...]] = {
    "units": ("BYTES_PER_GB", "BYTES_PER_GIB", "human_bytes", "parse_bytes"),
    "memory": ("model_state_bytes",),
    "recipes": (
        "RECIPES",
        "adafactor_state_bytes",
        "block_scaled_bytes",
        "blockwise_8bit_state_bytes",
    ),
    "sharding": ("gathered_layer_bytes", "ideal_sharded_memory"),
    "activations": ("activation_bytes", "logits_peak_bytes"),
    "phases": ("peak_memory",),
    "kv_cache": ("kv_cache_bytes", "latent_kv_cache_bytes", "paged_kv_cache"),
    "kv_layers": ("KVLayer", "hybrid_kv_cache_bytes", "sliding_window_tokens"),
    "kv_capacity": ("group_cache_tokens", "max_sequences", "stage_capacity"),
    "model_shapes": ("ExpertShape", "LatentShape", "ModelShape", "model_kv_layers"),
    "parameters": ("lora_parameters", "parameter_count", "parameter_tensors", "tensor_shapes"),
    "parameter_ranks": ("parameters_on_rank",),
    "overlap": ("pipeline_report", "straggler_report"),
    "makespan": ("pipeline_makespan",),
    "stragglers": (
        "expected_maximum",
        "expected_maximum_exponential",
        "expected_maximum_lognormal",
        "expected_maximum_normal",
        "expected_maximum_uniform",
        "group_utilization",
    ),
    "admission": ("staleness_budget", "staleness_capacity"),
    "weight_sync": (
        "bucket_count",
        "gigabits_to_gigabytes_per_second",
        "publication_report",
        "synchronization_transfer_time",
        "transfer_report",
    ),
    "sync_schedule": ("synchronization_schedule",),
    "collectives": (
        "best_chain_chunks",
        "binomial_tree_seconds",
        "fan_out_seconds",
        "pipelined_chain_seconds",
        "ring_all_reduce_seconds",
    ),
    "shard_transfers": ("node_fan_out_seconds", "point_to_point_seconds", "sharded_point_to_point_seconds"),
    "delta_sync": ("bf16_update_visible", "delta_payload_bytes"),
    "checkpoint_interval": ("checkpoint_cadence", "optimal_checkpoint_interval"),
    "checkpoint_cost": ("checkpoint_availability", "expected_overhead_fraction", "expected_run_seconds"),
    "mtbf": ("mtbf_estimate", "scale_mtbf_seconds"),
    "multilevel": ("multilevel_checkpoints",),
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
    "masks": ("completion_ended", "completion_lengths", "completion_token_mask", "truncation_flags"),
    "mask_algebra": ("combined_mask", "mask_from_lengths", "shifted_mask", "trained_tokens"),
    "masked_means": ("completion_statistics", "masked_mean"),
    "contract": ("rollout_contract_errors",),
}

KERNEL_NAMES: dict[str, str] = {
    name: f"lagsweep.kernels.{module}" for module, names in _BY_MODULE.items() for name in names
}
