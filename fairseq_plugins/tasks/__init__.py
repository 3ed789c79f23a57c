"""Tasks that fairseq lacks. Importing this registers them.

fairseq imports this folder only for a --user-dir that it has not imported yet; scripts that load a
checkpoint need its task as well.
"""

from .classification import ClassificationTask
from .summarization import SummarizationTask
from .translation_sampled import SampledTranslationTask

__all__ = ["ClassificationTask", "SampledTranslationTask", "SummarizationTask"]
