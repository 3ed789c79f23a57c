"""ROUGE of summaries."""

import logging
from pathlib import Path

from fairseq.data import data_utils

from fairseq_plugins.api import Summarizer
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.evaluate.test_sets import Output, Written, files_of_pair
from fairseq_plugins.files import read_lines
from fairseq_plugins.scoring.bootstrap import Metric, means
from fairseq_plugins.scoring.rouge import METRICS, NAMES, Rouge, rouge
from fairseq_plugins.text.sentences import BOUNDARY, separate_sentences
from fairseq_plugins.text.subwords import KINDS

logger = logging.getLogger(__name__)


class Summaries(Written):
    """The documents of a split; a hypothesis is a summary.

    ROUGE uses Porter's stemmer, as published figures do. The published ROUGE-L is the summary-level
    variant, called ROUGE-Lsum here.

    Args:
        data: a prepared folder.
        split: test, valid or train.
        target: not used; summaries have no language.

    Attributes:
        unicode: count words of any script, without the stemmer.

    Raises:
        ConfigurationError: the folder was not prepared by this package, or lacks the split.
    """

    has_rouge, kind = True, Summarizer

    def __init__(self, data: Path | Prepared, split: str, target: str | None = None):
        prepared = Prepared.of(data)
        self.data, settings, self.unicode = prepared.folder, prepared.processing, False
        self._joined_by = KINDS[settings.subword].fairseq_name
        self._source = self.data / RAW / f"{split}.{settings.source_lang}"
        summaries = self.data / RAW / f"{split}.{settings.target_lang}"
        self.files = files_of_pair(prepared, split, [self._source, summaries])
        self.references = [
            f"{BOUNDARY} ".join(separate_sentences(line.lower() if settings.lowercase else line))
            for line in read_lines(summaries)
        ]
        self.total = len(self.references)

    def written(self, model: Summarizer) -> Output:
        """See `Written.written`."""
        found = [outputs[0] for _, _, outputs in model.candidates(read_lines(self._source), 1)]
        self.cut_off = sum(not output.complete for output in found)
        how = self._joined_by
        return {"hypothesis": [data_utils.post_process(each.pieces, how) for each in found]}

    def texts(self) -> Output:
        """See `TestSet.texts`."""
        return {"source": read_lines(self._source), "reference": self.references}

    def metrics(self, *outputs: Output) -> list[Metric]:
        """See `TestSet.metrics`."""
        found = {id(output): self._rouge(output) for output in outputs}
        names, signature = [NAMES[name] for name in METRICS], found[id(outputs[0])].signature
        return means(names, lambda output: found[id(output)].scores[:, :, 0], outputs, signature)

    def _rouge(self, output: Output) -> Rouge:
        summaries, unicode = output["hypothesis"], self.unicode
        result = rouge(self.references, summaries, not unicode, unicode)
        for warning in result.warnings:
            logger.warning(warning)
        return result
