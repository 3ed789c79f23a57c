"""Raw text in one language to raw text in another, with a trained model.

Translator("runs/transformer_ftc").translate(["Guten Morgen!"])
"""

import math
from typing import List, Optional, Sequence, Union

from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.raw_text import Place, RawTextGenerator

# A translation may have twice as many subwords as its source, rounded up to a multiple of this: no
# limit depends on what else is in the batch.
LENGTH_STEP = 100


class Translator(RawTextGenerator):
    """Translates lines with beam search.

    Args:
        models: a checkpoint, or a folder of them; several are used together as an ensemble.
        data: the prepared folder; None for the one the model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        beam, lenpen: as in fairseq-generate.
        max_tokens: subwords in a batch, padding included.
        int8: 8-bit matrix products, on a CPU only (see `generation.int8`).

    Attributes:
        split: numbers (from 1) of the lines that were too long for the model, and so translated in
            parts.
        cut_off: numbers of the lines whose translation was stopped at the length limit.

    Raises:
        ConfigurationError: a folder or file is missing, or model and data do not fit together.
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
        super().__init__(models, data, cpu, fp16, generation, max_tokens, int8)
        self.split: List[int] = []
        self.cut_off: List[int] = []
        self._lines_seen = 0

    def max_length(self, source_length: int) -> int:
        return 2 * LENGTH_STEP * math.ceil(source_length / LENGTH_STEP)

    def translate(self, lines: Sequence[str]) -> List[str]:
        """One translation a line, in the order of `lines`; a line without words stays empty."""
        parts: List[List[str]] = []
        line_of: List[int] = []
        for number, line in enumerate(lines):
            pieces = self.processor.encode(line).split()
            if len(pieces) > self.max_source:
                self.split.append(self._lines_seen + number + 1)
            for part in self._within_limit(pieces):
                parts.append(part)
                line_of.append(number)
        pieces_of: List[List[str]] = [[] for _ in lines]
        for number, output in zip(line_of, self.generate(parts)):
            pieces_of[number].append(output.pieces)
            seen = self._lines_seen + number + 1
            if not output.complete and seen not in self.cut_off:
                self.cut_off.append(seen)
        self._lines_seen += len(lines)
        return [self.processor.decode(" ".join(pieces)) if pieces else "" for pieces in pieces_of]

    def _within_limit(self, pieces: List[str]) -> List[List[str]]:
        """Cut a line that is too long: after a sentence in the second half, else after a word."""
        parts = []
        while len(pieces) > self.max_source:
            window = range(self.max_source, self.max_source // 2, -1)
            words = [end for end in window if self.processor.subwords.is_word_end(pieces, end)]
            sentences = [end for end in words if pieces[end - 1][-1] in ".!?\u2026\u3002"]
            end = (sentences or words or [self.max_source])[0]
            parts.append(pieces[:end])
            pieces = pieces[end:]
        return parts + [pieces] if pieces else parts
