"""Summarizes documents with an exported model."""

from pathlib import Path
from typing import Any, Optional, Union

from .exported_model import ExportedModel
from .search import Options
from .text import DocumentSummarizer


class Summarizer(DocumentSummarizer, ExportedModel):
    """Summarizes documents; see `ExportedModel` and `DocumentSummarizer`.

    Args:
        model: the exported folder.
        threads: threads of a batch.
        max_tokens: subwords in a batch, padding included.
        shortlist: whether to choose among likely words only: faster, and not exact.
        min_length, max_length: subwords of a summary. A max_length of None is `LONGEST`, or the
            model's limit if that is lower.
        options: options of the search, see `search.Options`.

    Raises:
        ConfigurationError: the folder cannot be read, or an option cannot work.
    """

    def __init__(
        self,
        model: Union[str, Path],
        threads: int = 1,
        max_tokens: int = 4000,
        shortlist: bool = False,
        min_length: int = 1,
        max_length: Optional[int] = None,
        no_repeat_ngram: int = 3,
        **options: Any,
    ) -> None:
        wanted = Options(min_len=min_length, no_repeat_ngram=no_repeat_ngram, **options)
        ExportedModel.__init__(self, model, threads, max_tokens, shortlist, wanted)
        self.set_lengths(min_length, max_length)
