"""Where each flat public name of ``lagsweep`` lives: name -> module, loaded on first use."""

from __future__ import annotations

_BY_MODULE: dict[str, tuple[str, ...]] = {
    "lagsweep.kernels.errors": (
        "LagsweepError",
        "ConfigError",
        "ContractError",
        "StoreError",
        "CheckpointError",
    ),
    "lagsweep.sweeps.config.config": ("PipelineConfig", "Limit"),
    "lagsweep.sweeps.laws.lengths": ("LengthLaw", "SecondsLaw"),
    "lagsweep.sweeps.runs.diagnosis": ("explain_stall", "phase_bounds"),
    "lagsweep.sweeps.presets.registry": ("preset_config",),
    "lagsweep.sweeps.runs.simulate": ("simulate_pipeline", "result_row", "PipelineResult"),
    "lagsweep.sweeps.sweep.run": ("run_sweep", "run_spec", "load_spec"),
    "lagsweep.sweeps.store.store": ("open_sweep",),
    "lagsweep.sweeps.spec.spec": ("SweepSpec",),
    "lagsweep.sweeps.spec.carried": ("config_at",),
    "lagsweep.sweeps.results.frontier": ("frontier", "paired_difference"),
    "lagsweep.sweeps.recommend.recommend": ("recommend",),
    "lagsweep.sweeps.charts.plots": ("plot_frontier", "plot_heatmap", "plot_timeline", "plot_lag"),
    "lagsweep.sweeps.checkpoint.checkpoint": (
        "make_checkpoint",
        "checkpoint_as_dict",
        "save_checkpoint",
        "load_checkpoint",
        "latest_checkpoint",
        "restore_rng",
    ),
    "lagsweep.sweeps.records.check": ("validate_records", "RecordReport"),
    "lagsweep.sweeps.checkpoint.drill": ("recovery_drill",),
}

PUBLIC_NAMES: dict[str, str] = {name: module for module, names in _BY_MODULE.items() for name in names}
