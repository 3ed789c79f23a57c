"""What newer releases of torch and fairseq ask of each other, repaired here, one file a topic.

fairseq imports its user-dir before it reads the command line, so `apply()`, called by the package's
`__init__`, is in time for training, validation, generation, `from_pretrained`, and the processes
they start. Every item is a function of its own that says why it exists and for which versions, and
changes nothing where it is not needed. Importing this module changes nothing by itself.

"ff" below is fairseq-fixed 0.12.3.1 (fairseq's main branch of 2023/24); 0.12.2 is the last release.
"""

from fairseq_plugins.compat import (
    batches,
    bf16,
    checkpoints,
    command_line,
    distributed,
    generation,
)


def apply() -> None:
    """Mend everything. Prints nothing; a second call does nothing."""
    checkpoints.allow_types_of_fairseq_checkpoints()
    checkpoints.explain_refused_checkpoints()
    checkpoints.drop_fused_copies_of_encoder_weights()
    checkpoints.copy_checkpoints_in_one_step()
    batches.keep_the_last_batch()
    command_line.keep_bf16_off_the_tpu()
    bf16.multiply_bf16_in_float32_where_it_is_slow()
    command_line.count_no_gpus_for_the_cpu()
    command_line.validate_without_a_task()
    distributed.complete_distributed_launch()
    distributed.refuse_training_alone()
    distributed.gather_lists_without_a_gpu()
    distributed.end_process_groups()
    command_line.refuse_asynchronous_writing_without_iopath()
    generation.number_diverse_beams_within_the_batch()
    generation.ban_repeated_ngrams()
    generation.copy_unknown_words_without_a_dictionary()
