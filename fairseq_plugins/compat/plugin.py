"""Facts about the plugin that brings these repairs; it sets them when it registers.

They know nothing else about it. With the defaults, they refer to fairseq's own parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Plugin:
    """Parts that messages advise, the scores of tasks, and what prepared folders hold.

    Args:
        text_model, label_model: an `--arch` that writes text, and one that gives labels.
        text_criterion: a `--criterion` for text.
        label_task: a `--task` of labels.
        scores: the metrics that `--eval-NAME` of a task measures; each is better if higher.
        digests_of_words: of a folder of data, a digest of each file on whose words or pieces a
            model depends. They are stored in checkpoints and compared.
        check_intact: raises a ConfigurationError if a file of a folder has changed.
        how_to_prepare: how the user prepares a folder again; "" if fairseq-preprocess made it.
    """

    text_model: str = "transformer"
    label_model: str = "roberta"
    text_criterion: str = "label_smoothed_cross_entropy"
    label_task: str = "sentence_prediction"
    scores: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"bleu": ("bleu",)})
    digests_of_words: Callable[[Path], dict[str, str]] = lambda folder: {}
    check_intact: Callable[[Path, Path], None] = lambda folder, path: None
    how_to_prepare: Callable[[Path], str] = lambda folder: ""


plugin = Plugin()
