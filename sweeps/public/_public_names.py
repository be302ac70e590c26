"""Where each flat public name of ``lagsweep`` lives: name -> module, loaded on first use."""

from __future__ import annotations

_BY_MODULE: dict[str, tuple[str, ...]] = {
    "lagsweep.errors": ("LagsweepError", "ConfigError", "ContractError", "StoreError", "CheckpointError"),
    "lagsweep.sweeps.config": ("PipelineConfig", "Limit"),
    "lagsweep.sweeps.length_laws": ("LengthLaw", "SecondsLaw"),
    "lagsweep.sweeps.engine_report": ("explain_stall", "phase_bounds"),
    "lagsweep.sweeps.presets": ("preset_config",),
    "lagsweep.sweeps.simulate": ("simulate_pipeline", "result_row", "PipelineResult"),
    "lagsweep.sweeps.run": ("run_sweep",),
    "lagsweep.sweeps.store": ("open_sweep",),
    "lagsweep.sweeps.spec": ("load_spec", "SweepSpec", "config_at"),
    "lagsweep.sweeps.analysis": ("frontier", "paired_difference"),
    "lagsweep.sweeps.recommend": ("recommend",),
    "lagsweep.sweeps.plots": ("plot_frontier", "plot_heatmap", "plot_timeline", "plot_lag"),
    "lagsweep.sweeps.checkpoint": (
        "make_checkpoint",
        "checkpoint_as_dict",
        "save_checkpoint",
        "load_checkpoint",
        "latest_checkpoint",
        "restore_rng",
    ),
    "lagsweep.sweeps.records": ("validate_records", "RecordReport"),
    "lagsweep.sweeps.drill": ("recovery_drill",),
}

PUBLIC_NAMES: dict[str, str] = {name: module for module, names in _BY_MODULE.items() for name in names}
