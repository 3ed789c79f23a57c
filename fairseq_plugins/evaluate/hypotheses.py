"""Write the output of a model for a split, with the options of fairseq-generate.

    python -m fairseq_plugins.evaluate.hypotheses DATA --path MODEL --gen-subset test ...

Raw text is processed as in `translate` and `summarize`, to score what users get: a line without
words stays empty, and a line that is too long is translated in parts. The output has one line
``D-<number> <TAB> <TAB> subwords`` per text, in order; --remove-bpe joins subwords to words.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options, utils
from fairseq.data import data_utils

import fairseq_plugins
from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.request import generation_parser
from fairseq_plugins.evaluate.test_sets import GENERATED
from fairseq_plugins.files import read_lines
from fairseq_plugins.search.choose_engine import open_engine
from fairseq_plugins.search.engine import Engine
from fairseq_plugins.search.onnx_backend.folder import is_export
from fairseq_plugins.search.torch_backend.trained_model import (
    TrainedModel,
    only_for_checkpoints,
    search_options,
)
from fairseq_plugins.summarizer import Summarizer
from fairseq_plugins.translator import Translator

OF_CHECKPOINTS = ("fp16", "model_overrides", "batch_size")  # besides options of the search


def load(given: Namespace) -> Engine:
    """The model and the search given by options of fairseq-generate.

    Raises:
        ConfigurationError: an option is not for such a model.
    """
    if is_export(Path(given.path)):
        return load_export(given)
    overrides: dict[str, Any] = read_literal(given.model_overrides)
    return TrainedModel(
        utils.split_paths(given.path), given.data, given.cpu, given.fp16, given, given.max_tokens,
        max_sentences=given.batch_size, overrides=overrides, word_by_word=False,
    )  # fmt: skip


def load_export(given: Namespace) -> Engine:
    """As `load`, for an exported model."""
    search, unset = dict(vars(search_options(given))), generation_parser()
    for name in OF_CHECKPOINTS:
        if getattr(given, name) != unset.get_default(name):
            raise ConfigurationError(only_for_checkpoints(name))
    return open_engine(
        given.path, max_tokens=given.max_tokens or 4000,
        threads=torch.get_num_threads(), **search,
    )  # fmt: skip


def pieces(given: Namespace, limited: bool) -> list[str]:
    """The output's subwords for each text of the split, in order, separated by spaces.

    Args:
        given: options of fairseq-generate, as parsed.
        limited: whether these options limit the lengths of hypotheses.
    """
    engine, kind = load(given), Summarizer if given.task == "summarization" else Translator
    model: Any = kind(engine, progress=lambda count: print(f"{GENERATED}{count}", flush=True))
    if limited:
        model.max_length = lambda length: int(given.max_len_a * length + given.max_len_b)
    text = Path(given.data) / RAW / f"{given.gen_subset}.{given.source_lang}"
    lines = list(read_lines(text))
    if isinstance(model, Summarizer):
        return [outputs[0].pieces for _, _, outputs in model.candidates(lines, 1)]
    return model.pieces(lines)


def main(words: Sequence[str]) -> None:
    fairseq_plugins.register()
    given = options.parse_args_and_arch(generation_parser(), list(words))
    if given.seed is not None and not given.no_seed_provided:
        np.random.seed(given.seed)
        utils.set_torch_seed(given.seed)
    limited = any(word in ("--max-len-a", "--max-len-b") for word in words)
    for number, line in enumerate(pieces(given, limited)):
        print(f"D-{number}\t\t{data_utils.post_process(line, given.post_process)}")


if __name__ == "__main__":
    main(sys.argv[1:])
