"""Tasks that fairseq lacks. Importing this package registers them.

fairseq imports this folder only for a --user-dir that is not imported yet. Scripts that import the
package and load a checkpoint also need the registration.
"""

from .classification import ClassificationTask
from .summarization import SummarizationTask
from .translation_sampled import SampledTranslationTask

__all__ = ["ClassificationTask", "SampledTranslationTask", "SummarizationTask"]
