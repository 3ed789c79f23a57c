"""Tasks that fairseq lacks. Importing this registers them.

fairseq imports this folder only for a --user-dir that it has not imported yet; scripts that load a
checkpoint need its task as well.
"""

from .summarization import SummarizationTask
from .translation_sampled import SampledTranslationTask

__all__ = ["SampledTranslationTask", "SummarizationTask"]
