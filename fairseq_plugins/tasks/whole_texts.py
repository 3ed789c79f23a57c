"""Report a text that no batch can hold as an error, also in training."""

from typing import Any

import numpy as np
from fairseq.tasks import FairseqTask

from fairseq_plugins.errors import ConfigurationError


class WholeTexts(FairseqTask):
    """A task that reads all its texts; `how_to_cut` names the options that shorten them."""

    how_to_cut = ""

    def get_batch_iterator(
        self, dataset: Any, max_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As in fairseq, but without skipping training texts over --max-tokens.

        Raises:
            ConfigurationError: a text is longer than --max-tokens; the message says what to do.
        """
        longest = int(np.max(dataset.sizes)) if len(dataset) else 0
        too_long = ConfigurationError(
            f"a text of {longest:,} tokens is longer than --max-tokens (or --max-tokens-valid) "
            f"{max_tokens}: give {longest} or more, or truncate texts with {self.how_to_cut}"
        )
        if max_tokens is not None and longest > max_tokens:
            raise too_long
        try:
            return super().get_batch_iterator(dataset, max_tokens, *args, **kwargs)
        except AssertionError as error:
            if "max_tokens" not in str(error):
                raise
            raise too_long from None
