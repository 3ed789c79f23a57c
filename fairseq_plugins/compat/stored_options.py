"""Make the options stored in a checkpoint safe: they must neither run code nor open files.

fairseq builds the model and the task of a checkpoint from the options stored in it. It passes some
of them to `eval` and opens others as files, and omegaconf resolves `${...}` in them. All of these
are strings, which safe unpickling allows. `plain` makes them safe before fairseq sees them.

The rule for files: only a file that the user names is opened, on the command line, in a call, or by
putting it beside the checkpoint. The one exception is `data`, the prepared folder: `translate`,
`summarize`, `classify`, `export` and their classes read dictionaries and the settings of the
preparation from it.
"""

import logging
import numbers
import os
import re
from argparse import Namespace
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np
from fairseq import criterions

from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Options that fairseq passes to `eval`, in any of its models, tasks, criterions, optimizers and
# schedulers. A string stored under such a name must be a literal.
EVALUATED: frozenset[str] = frozenset(
    """
    adafactor_eps adam_betas adamax_betas adaptive_input_cutoff adaptive_softmax_cutoff
    character_filters conv_aggregator_layers conv_feature_layers decoder_attention decoder_layers
    decoder_xformers_att_config downsample encoder_attention encoder_layers
    encoder_xformers_att_config gated_attention lamb_betas left_pad_source left_pad_target lr
    pipeline_balance pipeline_decoder_balance pipeline_decoder_devices pipeline_devices
    pipeline_encoder_balance pipeline_encoder_devices pretrained project_input self_attention
    update_freq
    """.split()
)

# Files that fairseq would open, write or run, and the value that replaces their name. None: the
# checkpoint replaces the file, since it holds the weights. "": the user must name the file.
FILES: dict[str, str | None] = {
    **dict.fromkeys(
        """
        decoder_embed_path encoder_embed_path extra_data fixed_dictionary label_dir lang_dict
        lm_path load_pretrained_aux_decoder_from load_pretrained_decoder_from
        load_pretrained_encoder_from post_save_script replace_unk sampling_weights_from_file
        save_predictions source_dict target_dict target_dictionary tensorboard_logdir user_dir
        wer_args wer_kenlm_model wer_lexicon
        """.split()
    ),
    **dict.fromkeys(
        """
        baseline_model bpe_codes bpe_merges bpe_vocab bpe_vocab_file gpt2_encoder_json
        gpt2_vocab_bpe lang_to_offline_shard_ratio pretrained_checkpoint
        pretrained_mlm_checkpoint pretrained_xlm_checkpoint sentencepiece_model
        sentencepiece_model_path seq2seq_path w2v_path
        """.split(),
        "",
    ),
}
FILES_IN_DATA = frozenset(["config_yaml", "multitask_config_yaml"])  # a path may not leave `data`

# `${task.data}` refers to another option; anything else calls a resolver of omegaconf, such as
# `oc.env`, which reads the environment
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")
_LOOK_UP = re.compile(r"\$\{(?![\w.\[\]]+\})")


def plain(value: Any, name: str = "") -> Any:
    """A copy of stored options, however deeply nested, that is safe to give to fairseq.

    Args:
        value: `args` or `cfg` of a checkpoint, or a part of them.
        name: the option that holds `value`.

    Raises:
        ConfigurationError: a string would be run as code or resolved outside the checkpoint.
    """
    if isinstance(value, Namespace):
        return Namespace(**plain(vars(value)))
    if isinstance(value, dict):
        return {key: plain(item, str(key)) for key, item in value.items()}
    if not isinstance(value, (list, tuple, set, str, bytes, numbers.Number, np.bool_, NoneType)):
        raise ConfigurationError(f"its option {name} is a {type(value).__name__}")
    if name == "data" and isinstance(value, numbers.Number):
        raise ConfigurationError(f"its option {name} is {value}, which is no folder")
    if value and name in FILES:
        if FILES[name] is not None:
            logger.info("the checkpoint's %s %s is not opened: give the file yourself", name, value)
        return FILES[name]
    if isinstance(value, (list, tuple, set)):
        return type(value)(plain(item, name) for item in value)
    return _plain_text(value, name) if isinstance(value, str) else value


@repair(criterions, "build_criterion")
def ignore_removed_options_of_criterions(
    original: Callable, cfg: Any, task: Any, **kwargs: Any
) -> Any:
    """Build a checkpoint's criterion, for fairseq-validate, without options that it has lost.

    fairseq does so for models and tasks. Options from a command line are never unknown here.
    """
    return original(cfg, task, from_checkpoint=True)


def _plain_text(value: str, name: str) -> str:
    if _LOOK_UP.search(value):
        raise ConfigurationError(
            f"its option {name} is {value!r}, which omegaconf would look up on this machine"
        )
    if name in FILES_IN_DATA and "${" in value:
        raise ConfigurationError(f"its option {name} is {value!r}, which may become any path")
    if name in EVALUATED and not _REFERENCE.fullmatch(value):
        try:
            read_literal(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"its option {name} is {error}") from None
    return os.path.basename(value) if name in FILES_IN_DATA else value
