"""Summarize raw documents with a trained model.

Summarizer("runs/fastformer_copy_cnn_dm").summarize(["A long document."])[0].summary
"""

from typing import Optional, Sequence, Union

from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.raw_text import RawTextGenerator
from fairseq_plugins.serving.text import LONGEST, DocumentSummarizer, Summary
from fairseq_plugins.trained_models import Place

__all__ = ["LONGEST", "Summarizer", "Summary"]


class Summarizer(DocumentSummarizer, RawTextGenerator):
    """Summarizes documents with beam search.

    Args:
        models: a checkpoint, or a folder of them; several form an ensemble.
        data: the prepared folder; None for the folder that the model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        beam, lenpen: as in fairseq-generate.
        min_length, max_length: limits of a summary's length in subwords; None for `LONGEST`, or for
            the model's limit if that is smaller.
        no_repeat_ngram: no n-gram of this many subwords occurs twice in a summary; 0 for no limit.
        max_tokens: subwords in a batch, padding included; a longer document is a batch by itself.
        int8: 8-bit matrix products, on a CPU only (see `generation.int8`).

    Raises:
        ConfigurationError: a folder or file is missing, model and data do not match, or the model
            cannot write summaries of these lengths.
    """

    def __init__(
        self,
        models: Union[Place, Sequence[Place]],
        data: Optional[Place] = None,
        cpu: bool = False,
        fp16: bool = False,
        beam: int = 5,
        lenpen: float = 1.0,
        min_length: int = 1,
        max_length: Optional[int] = None,
        no_repeat_ngram: int = 3,
        max_tokens: int = 4000,
        int8: bool = False,
    ):
        generation = GenerationConfig(
            beam=beam, lenpen=lenpen, min_len=min_length, no_repeat_ngram_size=no_repeat_ngram
        )
        super().__init__(models, data, cpu, fp16, generation, max_tokens, int8)
        self.set_lengths(min_length, max_length)
