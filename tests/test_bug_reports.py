"""Which tests hold each bug that was reported for other systems of this field.

``data/bug_report_index.json`` lists the reports with their sources. Every one is either covered by tests of
its whole kind, named here, or stands under ``NO_COUNTERPART`` with the reason why there is none here.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
INDEX = json.loads((TESTS / "data" / "bug_report_index.json").read_text("utf-8"))

_DRILL = "sweeps/test_drill.py::"
_LEDGER = "sweeps/test_prompt_cursor.py::"
_MANIFEST = "sweeps/test_checkpoint.py::"
_RNG_STATE = "sweeps/test_rng_state.py::"
_SIMULATION = "sweeps/test_simulation_checkpoint.py::"
_RUN = "sweeps/test_run_command.py::"
_SWEEP = "sweeps/test_run_sweep.py::"
_RESUME = "sweeps/test_resume.py::"
_STORE = "sweeps/test_store.py::"
_DASK = "sweeps/test_dask.py::"
_SPEC = "sweeps/test_spec.py::"
_VALIDATE = "sweeps/test_validate.py::"
_SUMS = "sweeps/test_ledger_command.py::"
_CONTRACT = "kernels/test_contract.py::"
_ESS = "kernels/test_ess.py::"
_WEIGHTS = "kernels/test_importance_weights.py::"
_MASKS = "kernels/test_masks.py::"
_LAG = "kernels/test_lag.py::"
_MEMORY = "kernels/test_memory.py::"
_UNITS = "kernels/test_units.py::"
_KV = "kernels/test_kv_cache.py::"
_STALE = "test_staleness_bugs.py::"
_INVARIANTS = "properties/test_invariants.py::"
_ENGINE = "properties/test_general_invariants.py::"

COVERED: dict[str, tuple[str, ...]] = {
    # Checkpoints and recovery
    "bug-ckpt-01": (
        _DRILL + "test_a_resume_at_the_end_of_an_epoch_or_elsewhere_does_every_planned_update",
        _DRILL + "test_a_resume_after_the_last_update_does_not_pretend_to_train",
        _LEDGER + "test_every_epoch_hands_out_every_prompt_once_wherever_the_run_was_stopped",
        _LEDGER + "test_the_end_of_an_epoch_is_the_start_of_the_next",
    ),
    "bug-ckpt-02": (
        _DRILL + "test_two_resumes_keep_the_cursor_aligned",
        _MANIFEST + "test_a_cursor_counted_since_the_last_resume_is_refused_at_the_second_save",
        _MANIFEST + "test_no_counter_ever_falls_from_one_checkpoint_to_the_next",
    ),
    "bug-ckpt-04": (
        _RNG_STATE + "test_the_half_word_left_by_32_bit_draws_is_kept",
        _RNG_STATE + "test_a_generator_goes_on_exactly_after_any_draws",
        _RNG_STATE + "test_big_integers_of_the_state_are_text",
        _MANIFEST + "test_the_streams_go_on_in_another_process",
    ),
    "bug-ckpt-06": (
        _MANIFEST + "test_resume_takes_the_newest_whole_checkpoint_and_names_the_torn_ones",
        _MANIFEST + "test_whichever_checkpoints_are_torn_the_newest_whole_one_is_found",
        _MANIFEST + "test_a_process_killed_while_saving_always_leaves_a_whole_checkpoint",
        _MANIFEST + "test_the_file_is_flushed_before_it_gets_its_name_and_the_folder_after",
    ),
    "bug-ckpt-07": (
        _MANIFEST + "test_every_changed_component_is_named_with_both_values_and_the_way_to_allow_it",
        _MANIFEST + "test_an_allowed_change_warns_and_is_written_into_every_later_checkpoint",
        _MANIFEST + "test_a_component_that_appears_disappears_or_changes_its_kind_is_a_change",
    ),
    "bug-ckpt-08": (
        _DRILL + "test_work_in_flight_is_neither_lost_nor_repeated",
        _DRILL + "test_the_whole_resume_is_exact_and_every_broken_one_is_caught_with_its_effect",
        _LEDGER + "test_prompts_whose_rollouts_are_gone_are_handed_out_first_and_counted_apart",
        _SIMULATION + "test_the_manifest_lists_every_rollout_that_is_not_settled",
    ),
    "bug-ckpt-09": ("kernels/test_mtbf_and_levels.py::test_only_failures_count_against_the_run_time",),
    "bug-ckpt-11": (
        "kernels/test_checkpoint_interval.py::"
        "test_a_save_longer_than_its_interval_neither_overlaps_nor_stops_the_work",
    ),
    "bug-ckpt-13": (
        _LEDGER + "test_dropped_prompts_do_not_hold_the_cursor_back",
        _LEDGER + "test_the_cursor_is_the_first_unsettled_prompt_and_never_falls",
    ),
    # The command line
    "bug-cli-01": (
        _SPEC + "test_a_bad_file_is_refused_with_file_section_and_key",
        _RUN + "test_a_bad_file_names_file_section_and_key",
        _RUN + "test_bad_flags_are_usage_errors",
    ),
    "bug-cli-02": (
        _RUN + "test_the_real_command_writes_plain_lines_into_log_files_and_says_that_it_compiles",
        _RUN + "test_silence_on_request_and_a_bar_on_terminals_only",
        _VALIDATE + "test_progress_is_plain_lines_on_stderr",
    ),
    "bug-cli-04": (
        _RUN + "test_failed_runs_are_told_as_they_happen_and_at_the_end",
        _RUN + "test_all_failed_is_not_success",
        _VALIDATE + "test_one_bad_file_of_several_fails_and_both_are_reported",
        _VALIDATE + "test_usage_errors_have_code_2_and_no_traceback",
    ),
    "bug-cli-06": (
        _VALIDATE + "test_all_bad_lines_are_found_by_physical_number",
        _VALIDATE + "test_counts_are_exact_for_any_mixture_and_any_cap",
    ),
    "bug-cli-08": (
        _RUN + "test_the_real_command_writes_plain_lines_into_log_files_and_says_that_it_compiles",
    ),
    "bug-cli-09": (
        _RUN + "test_signals_end_at_a_safe_point_and_the_same_command_goes_on",
        _RUN + "test_the_real_command_stops_on_signals",
        _RESUME + "test_killed_between_any_two_writes_of_an_array",
        "sweeps/test_kill_drill.py::test_killed_at_random_moments_it_ends_as_undisturbed",
    ),
    # Effective sample size and importance weights
    "bug-ess-01": (
        _ESS + "test_large_log_weights_do_not_overflow",
        _ESS + "test_a_common_shift_changes_nothing",
        _ESS + "test_equals_the_twin",
    ),
    "bug-ess-02": (_ESS + "test_weights_need_not_sum_to_one", _ESS + "test_a_power_of_two_changes_nothing"),
    "bug-ess-04": (
        _ESS + "test_pooled_and_per_sequence_ess_are_two_answers",
        _ESS + "test_levels_equal_the_twin",
    ),
    "bug-ess-06": (_WEIGHTS + "test_a_rejected_row_contributes_exactly_nothing",),
    "bug-ess-07": (_WEIGHTS + "test_both_sequence_levels_have_names_and_show_the_value_before_the_clip",),
    "bug-ess-08": (_ESS + "test_sums_are_double_whatever_the_input",),
    # Masks and rollout records
    "bug-mask-01": (_MASKS + "test_every_declared_eos_ends_a_completion", _MASKS + "test_equals_the_twin"),
    "bug-mask-02": (
        _MASKS + "test_the_true_eos_stays_in_when_pad_is_eos",
        _MASKS + "test_lengths_cut_rows_whatever_the_padding_is",
    ),
    "bug-mask-03": (
        _MASKS + "test_a_dropped_completion_leaves_both_sum_and_count",
        _MASKS + "test_masked_means_equal_numpy",
    ),
    "bug-mask-05": (_MASKS + "test_lengths_are_of_what_was_generated_and_counts_of_what_is_trained",),
    "bug-mask-06": (
        _MASKS + "test_the_effective_mask_is_what_all_masks_share",
        _CONTRACT + "test_a_tool_mask_that_outlives_its_row_is_a_warning",
    ),
    "bug-mask-07": (_MASKS + "test_a_response_has_as_many_predictions_as_tokens",),
    "bug-mask-09": (
        _CONTRACT + "test_fewer_logprobs_than_tokens_is_an_error_with_both_lengths_in_the_systems_words",
        _CONTRACT + "test_a_record_in_another_systems_words_is_told_which_schema_has_them",
        _VALIDATE + "test_a_length_mismatch_names_record_field_and_both_lengths",
    ),
    "bug-mask-10": (
        _CONTRACT + "test_an_appended_eos_is_a_warning_unless_it_is_masked",
        _VALIDATE + "test_warnings_alone_pass_unless_strict",
    ),
    "bug-mask-12": (
        _CONTRACT + "test_logprobs_of_another_temperature_are_flagged_in_a_record_and_in_a_batch",
    ),
    # Memory, KV cache, weight synchronisation
    "bug-mem-01": (
        _MEMORY + "test_which_zero2_terms_are_sharded_is_shown_term_by_term",
        _MEMORY + "test_shards_agree_with_the_stored_cases",
    ),
    "bug-mem-02": (_MEMORY + "test_a_distributed_optimizer_costs_6_plus_12_over_dp",),
    "bug-mem-04": (
        _KV + "test_heads_are_kv_heads_and_the_hidden_size_plays_no_part",
        _SUMS + "test_kv_takes_kv_heads_and_whole_blocks",
    ),
    "bug-mem-06": (
        _KV + "test_the_tightest_pipeline_stage_decides",
        _SUMS + "test_kv_compares_need_and_room_stage_by_stage",
    ),
    "bug-mem-07": (_KV + "test_kv_heads_are_divided_by_the_tensor_parallel_size",),
    "bug-mem-09": (
        _KV + "test_sequences_are_admitted_in_whole_blocks",
        _SUMS + "test_kv_takes_kv_heads_and_whole_blocks",
    ),
    "bug-mem-11": (
        _MEMORY + "test_gb_and_gib_of_one_state_are_two_labelled_figures",
        _UNITS + "test_the_same_digits_with_gb_and_gib_are_different_sizes",
        _UNITS + "test_a_size_that_could_mean_two_things_is_refused",
        _SUMS + "test_every_size_is_labelled_gib_or_gb",
        _SUMS + "test_80gb_and_80gib_leave_different_room",
    ),
    "bug-mem-12": (
        "kernels/test_weight_sync.py::test_bits_bytes_and_calls_are_counted_apart",
        _SUMS + "test_sync_keeps_bits_and_bytes_apart_and_counts_calls",
    ),
    # Compiled code
    "bug-numba-01": (
        "kernels/test_rng.py::test_words_equal_numpy",
        _INVARIANTS + "test_threads_and_cuts_do_not_change_a_run",
        "package/test_kernel_rules.py::test_kernels_use_no_fastmath_no_threads_and_no_random_stream",
    ),
    "bug-numba-02": (
        _ESS + "test_the_compiled_kernel_sees_nan",
        "package/test_kernel_rules.py::test_kernels_use_no_fastmath_no_threads_and_no_random_stream",
    ),
    "bug-numba-04": (
        "package/test_compile_cache.py::test_an_edit_in_another_file_of_kernels_is_seen",
        "package/test_compile_cache.py::test_compile_flags_are_part_of_the_key",
    ),
    "bug-numba-06": (
        _DASK + "test_a_second_kernel_call_after_a_warm_up_in_the_parent_works_in_workers",
        _DASK + "test_workers_compute_on_one_numba_thread_each",
        "package/test_kernel_rules.py::test_kernels_use_no_fastmath_no_threads_and_no_random_stream",
    ),
    "bug-numba-07": (
        _MASKS + "test_totals_of_32_bit_lengths_do_not_wrap",
        _MASKS + "test_counts_are_64_bit_for_narrow_masks",
        _LAG + "test_counts_of_huge_batches_do_not_wrap",
    ),
    # Staleness and back-pressure
    "bug-stale-01": (
        _LAG + "test_the_limit_keeps_exactly_what_is_not_beyond_it",
        _CONTRACT + "test_the_lag_limit_keeps_exactly_what_is_not_beyond_it",
        _VALIDATE + "test_the_lag_limit_on_the_command_line",
        _INVARIANTS + "test_no_batch_is_older_than_the_lag_limit",
        _INVARIANTS + "test_an_update_discards_from_the_queue_only_what_just_became_too_old",
    ),
    "bug-stale-02": (
        _STALE + "test_admission_keeps_its_counters_over_a_resume",
        _DRILL + "test_the_admission_budget_holds_over_a_resume_far_into_the_run",
        _DRILL + "test_after_a_whole_restore_the_budget_is_the_lag_limit_whatever_the_version",
        _ENGINE + "test_work_admitted_and_not_trained_never_exceeds_the_budget",
    ),
    "bug-stale-04": (_STALE + "test_dropping_stale_work_starves_long_prompts_and_it_shows",),
    "bug-stale-05": (_LAG + "test_filler_rows_stay_out_of_the_summary",),
    "bug-stale-06": (
        _LAG + "test_a_rollout_that_spans_versions_goes_by_its_oldest_token_or_token_by_token",
        _CONTRACT + "test_a_record_that_spans_versions_goes_by_its_oldest_token",
    ),
    "bug-stale-07": (_STALE + "test_a_straggler_that_never_ends_leaves_a_run_that_says_what_is_missing",),
    "bug-stale-11": (
        _STALE + "test_back_pressure_is_counted_and_queue_time_counts_as_lag",
        _INVARIANTS + "test_tokens_are_conserved",
        _ENGINE + "test_tokens_are_conserved_with_every_way_out",
    ),
    "bug-stale-13": (_STALE + "test_limits_of_a_whole_batch_let_the_first_step_complete_at_lag_zero",),
    # Sweeps and their store
    "bug-sweep-01": (
        _STORE + "test_one_chunk_of_every_array_is_one_unit_with_a_checksum",
        _STORE + "test_the_same_bytes_from_any_executor_and_twice",
        _DASK + "test_serial_threads_and_dask_give_the_same_bytes",
    ),
    "bug-sweep-03": (
        _RESUME + "test_done_means_done_and_nothing_else_is_run",
        _RESUME + "test_killed_between_any_two_writes_of_an_array",
    ),
    "bug-sweep-05": (
        "sweeps/test_kill_drill.py::test_killed_at_random_moments_it_ends_as_undisturbed",
        _RESUME + "test_killed_at_the_other_steps",
        _DASK + "test_a_worker_killed_in_mid_run_loses_nothing",
    ),
    "bug-sweep-06": (
        _SPEC + "test_a_bad_file_is_refused_with_file_section_and_key",
        _RUN + "test_bad_flags_are_usage_errors",
        _RUN + "test_failed_runs_are_told_as_they_happen_and_at_the_end",
        _RUN + "test_fail_fast_stops_and_says_how_to_go_on",
        _SWEEP + "test_a_failed_run_is_data_and_the_rest_goes_on",
    ),
    "bug-sweep-07": (
        _RUN + "test_failed_runs_are_told_as_they_happen_and_at_the_end",
        _RESUME + "test_failures_are_kept_with_their_reasons_and_can_be_retried",
    ),
    "bug-sweep-08": (_STORE + "test_labels_are_never_cut_when_the_store_grows",),
    "bug-sweep-10": (
        _VALIDATE + "test_no_schema_is_guessed_from_the_first_lines",
        _VALIDATE + "test_parquet_gives_the_findings_of_the_same_jsonl",
    ),
    "bug-sweep-11": (
        _SWEEP + "test_results_do_not_depend_on_threads_or_blocks",
        _STORE + "test_the_same_bytes_from_any_executor_and_twice",
        _INVARIANTS + "test_one_configuration_or_many_give_the_same_runs",
        _INVARIANTS + "test_threads_and_cuts_do_not_change_a_run",
    ),
}

NO_COUNTERPART = {
    "bug-stale-09": (
        "Nothing here packs rollouts under a ceiling: batch_tokens is what a batch reaches, and the last "
        "rollout may pass it by less than one response (tested in properties/test_invariants.py)."
    ),
    "bug-stale-10": (
        "Without a packer no rollout is too large: one longer than batch_tokens completes its batch."
    ),
}


@cache
def functions_of(file: Path) -> frozenset[str]:
    """Name the test functions of a file, by reading it."""
    tree = ast.parse(file.read_text("utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_report_is_covered_or_has_no_counterpart():
    ids = [report["id"] for report in INDEX]

    assert len(ids) == len(set(ids)) == 61
    assert sorted([*COVERED, *NO_COUNTERPART]) == sorted(ids)
    assert all(reason.endswith(".") for reason in NO_COUNTERPART.values())


@pytest.mark.parametrize("report", COVERED)
def test_the_tests_that_hold_a_report_exist(report):
    assert COVERED[report]
    for test in COVERED[report]:
        file, name = test.split("::")
        assert name in functions_of(TESTS / file), f"{file} has no test {name}"


def test_stored_reports_are_those_of_the_index():
    known = {report["id"] for report in INDEX}
    stored = [
        case["id"]
        for path in (TESTS / "data").rglob("*bug_reports.json")
        for case in json.loads(path.read_text("utf-8"))
    ]

    assert len(stored) > 30
    assert set(stored) <= known
