"""The sentences of a prepared folder as an export needs them."""

from typing import Any


def prepared_pairs(task: Any, split: str) -> Any:
    """fairseq's dataset of a split as it was prepared: all sentences, with their usual subwords.

    A task that samples subwords wraps it. A task that refuses documents over the model's limit
    keeps those of valid and test; the caller counts them.

    Raises:
        FileNotFoundError: the folder lacks the split.
    """
    cfg = getattr(task, "cfg", None)
    # the second is for training and would read the references
    for option, value in (("skip_invalid_size_inputs_valid_test", True), ("eval_bleu", False)):
        if hasattr(cfg, option):
            setattr(cfg, option, value)
    task.load_dataset(split)
    pairs = task.dataset(split)
    return getattr(pairs, "dataset", pairs)
