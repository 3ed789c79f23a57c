"""Translate raw text with a trained model.

Translator("runs/transformer_ftc").translate(["Guten Morgen!"])
"""

from typing import Optional, Sequence, Union

from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.raw_text import RawTextGenerator
from fairseq_plugins.serving.text import LineTranslator
from fairseq_plugins.tasks.summarization import SummarizationTask
from fairseq_plugins.trained_models import Place


class Translator(LineTranslator, RawTextGenerator):
    """Translates lines with beam search.

    Args:
        models: a checkpoint, or a folder of them; several form an ensemble.
        data: the prepared folder; None for the folder that the model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        beam, lenpen: as in fairseq-generate.
        max_tokens: subwords in a batch, padding included.
        int8: 8-bit matrix products, on a CPU only (see `generation.int8`).

    Attributes:
        split: numbers (from 1) of the lines that were too long for the model and were translated in
            parts.
        cut_off: numbers of the lines whose translation stopped at the length limit.

    Raises:
        ConfigurationError: a folder or file is missing, model and data do not match, or the model
            summarizes.
    """

    def __init__(
        self,
        models: Union[Place, Sequence[Place]],
        data: Optional[Place] = None,
        cpu: bool = False,
        fp16: bool = False,
        beam: int = 5,
        lenpen: float = 1.0,
        max_tokens: int = 4000,
        int8: bool = False,
    ):
        generation = GenerationConfig(beam=beam, lenpen=lenpen)
        RawTextGenerator.__init__(self, models, data, cpu, fp16, generation, max_tokens, int8)
        if isinstance(self.task, SummarizationTask):
            raise ConfigurationError(
                "--model was trained with --task summarization: it is for the command summarize"
            )
        LineTranslator.__init__(self)
