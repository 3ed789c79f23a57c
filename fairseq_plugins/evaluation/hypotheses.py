"""Write the output of a model for a split, with the options of fairseq-generate.

    python -m fairseq_plugins.evaluation.hypotheses DATA --path MODEL --gen-subset test ...

Raw text is processed as in `translate` and `summarize`, so that scores are of what users get: a
line without words stays empty, and one that is too long is translated in parts. The
output has a line ``D-<number> <TAB> <TAB> subwords`` for each text, in order; --remove-bpe joins
subwords to words.
"""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
from fairseq import checkpoint_utils, options, utils
from fairseq.data import data_utils

import fairseq_plugins
from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.evaluation.request import generation_parser
from fairseq_plugins.files import read_lines
from fairseq_plugins.preparation.documents import RAW
from fairseq_plugins.raw_text import RawTextGenerator
from fairseq_plugins.serving.text import LONGEST, DocumentSummarizer, LineTranslator

GENERATED = "generated "  # begins a line of progress, before the number of texts


class Search(RawTextGenerator):
    """The search that options of fairseq-generate describe.

    Args:
        given: the options, as parsed.
        limited: whether these options limit the lengths of hypotheses.
    """

    word_by_word = False

    def __init__(self, given: Namespace, limited: bool):
        overrides: Dict[str, Any] = read_literal(given.model_overrides)
        RawTextGenerator.__init__(
            self, utils.split_paths(given.path), given.data, given.cpu, given.fp16, given,
            given.max_tokens, max_sentences=given.batch_size, overrides=overrides,
        )  # fmt: skip
        self.given, self.limited = given, limited
        if given.lm_path is not None:
            (lm,), _ = checkpoint_utils.load_model_ensemble([given.lm_path], {"data": given.data})
            lm = (lm.half() if given.fp16 else lm).to(self.device).eval()
            lm.prepare_for_inference_(Namespace(generation=given))
            words = {"lm_model": lm, "lm_weight": given.lm_weight}
            self.generator = self.task.build_generator(
                self.models, given, extra_gen_cls_kwargs=words
            )
        self.on_batch = lambda count: print(f"{GENERATED}{count}", flush=True)

    def limit(self, source_length: int, usual: int) -> int:
        """The most subwords to write for a source of this many tokens, `usual` without options."""
        if not self.limited:
            return usual
        return int(self.given.max_len_a * source_length + self.given.max_len_b)


class Translations(LineTranslator, Search):
    """Translates as `translate` does."""

    def __init__(self, given: Namespace, limited: bool):
        Search.__init__(self, given, limited)
        LineTranslator.__init__(self)

    def max_length(self, source_length: int) -> int:
        return self.limit(source_length, super().max_length(source_length))


class Summaries(DocumentSummarizer, Search):
    """Summarizes as `summarize` does."""

    def __init__(self, given: Namespace, limited: bool):
        Search.__init__(self, given, limited)
        self.read_as_prepared()

    def max_length(self, source_length: int) -> int:
        return self.limit(source_length, min(LONGEST, self.max_output))

    def pieces(self, documents: Sequence[str]) -> List[str]:
        """The subwords of each summary, separated by spaces."""
        return [output.pieces for _, _, output in self.outputs(documents)]


def main(words: Sequence[str]) -> None:
    fairseq_plugins.register()
    given = options.parse_args_and_arch(generation_parser(), list(words))
    if given.seed is not None and not given.no_seed_provided:
        np.random.seed(given.seed)
        utils.set_torch_seed(given.seed)
    limited = any(word in ("--max-len-a", "--max-len-b") for word in words)
    model: Any = (Summaries if given.task == "summarization" else Translations)(given, limited)
    text = read_lines(Path(given.data) / RAW / f"{given.gen_subset}.{model.task.cfg.source_lang}")
    for number, pieces in enumerate(model.pieces(list(text))):
        print(f"D-{number}\t\t{data_utils.post_process(pieces, given.post_process)}")


if __name__ == "__main__":
    main(sys.argv[1:])
