"""Workarounds that let fairseq run on current Python, torch and numpy. README.md describes them.

Each is a function whose docstring says what fails. "fairseq" is fairseq-fixed 0.12.3.1, its main
branch of 2023/24. A workaround that is not needed changes nothing. `apply()` makes them all. The
package's `__init__` calls it when fairseq imports the user-dir, before the command line is parsed:
in time for training, validation, generation, `from_pretrained` and the processes they start.
Importing this module imports and changes nothing, because `importing` must come before fairseq.
"""

import importlib

# of those that replace the same function of fairseq, the last is called first
MODULES = (
    "uncompiled", "literals", "unpickling", "checkpoints", "stored_options", "batches",
    "numpy_names", "loss_scale", "command_line", "distributed", "training_options", "data_files",
    "resuming", "nan_detector", "generation", "mismatched_models", "best_score",
    "intact_checkpoints", "data_loaders", "deprecated_calls", "stopping", "multi_tensor",
    "cudnn_attention", "ema", "progress",
)  # fmt: skip


def apply() -> None:
    """Make the repairs of all modules. Prints nothing; a second call does nothing."""
    modules = [importlib.import_module(f"{__name__}.{name}").__name__ for name in MODULES]
    from fairseq_plugins.compat.patch import REPAIRS

    for module in modules:
        for make in REPAIRS[module]:
            make()
