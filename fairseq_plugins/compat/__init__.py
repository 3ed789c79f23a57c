"""Workarounds that let fairseq run on current Python, torch and numpy. README.md describes them.

Each is a function whose docstring says what fails. "fairseq" is fairseq-fixed 0.12.3.1, its main
branch of 2023/24. A workaround that is not needed changes nothing. `apply()` runs them all. The
package's `__init__` calls it when fairseq imports the user-dir, before the command line is parsed:
in time for training, validation, generation, `from_pretrained` and the processes they start.
Importing this module imports and changes nothing, because `importing` must come before fairseq.
"""


def apply() -> None:
    """Apply every repair. Prints nothing; a second call does nothing."""
    from fairseq_plugins.compat import (
        batches,
        best_score,
        checkpoints,
        command_line,
        cudnn_attention,
        data_files,
        data_loaders,
        deprecated_calls,
        distributed,
        ema,
        generation,
        intact_checkpoints,
        literals,
        loss_scale,
        mismatched_models,
        multi_tensor,
        nan_detector,
        numpy_names,
        progress,
        resuming,
        stopping,
        stored_options,
        training_options,
        uncompiled,
        unpickling,
    )

    uncompiled.supply_missing_extensions()
    literals.read_literals_in_place_of_eval()
    unpickling.read_broadcasts()
    checkpoints.read_checkpoints_safely()
    checkpoints.name_files_of_other_content()
    checkpoints.name_options_that_build_no_model()
    stored_options.ignore_removed_options_of_criterions()
    checkpoints.copy_checkpoints_in_one_step()
    checkpoints.store_digests_of_words()
    checkpoints.warn_of_other_words()
    batches.keep_the_last_batch()
    batches.tell_which_blocks_have_no_perplexity()
    batches.count_every_batch()
    numpy_names.keep_old_numpy_names()
    loss_scale.unscale_gradients_once()
    loss_scale.resume_with_the_scale()
    loss_scale.resume_with_the_counters_of_the_scale()
    command_line.mend_parsing()
    command_line.refuse_fractions_in_lists_of_whole_numbers()
    command_line.refuse_asynchronous_writing_without_iopath()
    command_line.show_errors_of_hydra()
    command_line.silence_hydra()
    distributed.complete_distributed_launch()
    training_options.check_before_training()
    resuming.refuse_to_begin_anew()
    nan_detector.look_for_nan_in_forward_only()
    distributed.check_the_machine()
    distributed.gather_lists_without_a_gpu()
    distributed.end_process_groups()
    generation.number_diverse_beams_within_the_batch()
    generation.end_diverse_hypotheses()
    generation.end_constrained_hypotheses()
    generation.match_the_words_of_the_source()
    generation.tell_that_no_hypothesis_is_allowed()
    generation.score_unknown_words_as_wrong()
    generation.obey_or_refuse_options()
    generation.refuse_unknown_words_of_search()
    generation.ban_repeated_ngrams()
    data_files.check_dictionaries()
    data_files.check_folders()
    data_files.check_data()
    data_files.require_targets_for_training()
    mismatched_models.explain_models_that_do_not_fit()
    intact_checkpoints.write_checkpoints_to_the_disk()
    intact_checkpoints.retry_writing_from_the_beginning()
    data_loaders.start_data_loaders()
    deprecated_calls.name_the_device_of_mixed_precision()
    deprecated_calls.give_both_masks_one_type()
    resuming.keep_the_batches_of_the_first_epoch()
    resuming.shuffle_after_the_curriculum()
    resuming.resume_with_another_number_of_processes()
    resuming.train_no_further_than_asked()
    resuming.remember_validations()
    resuming.remember_plateaus()
    best_score.forget_scores_of_other_validations()
    resuming.keep_parameters_in_float32()
    intact_checkpoints.remove_a_last_checkpoint_that_is_not_the_last()
    intact_checkpoints.resume_from_the_newest_intact_checkpoint()
    intact_checkpoints.release_after_training()
    stopping.save_when_terminated()
    multi_tensor.update_all_parameters_at_once()
    cudnn_attention.leave_out_cudnn_attention()
    ema.average_shared_weights_once()
    progress.report_progress()
