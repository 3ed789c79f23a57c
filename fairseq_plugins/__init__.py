"""Models and tools for fairseq, known to it once this package is given as `--user-dir`.

Importing the package mends what newer releases of torch and Python broke in fairseq (`compat`) and
registers architectures (`models`), criterions, scorers and tasks, and lets generation be fast
(`generation`). It prints nothing.
"""

from fairseq_plugins import compat
from fairseq_plugins.errors import show_configuration_errors_in_one_line

compat.apply()
show_configuration_errors_in_one_line()

# fairseq is mended first
from fairseq_plugins import criterions, generation, models, scoring, tasks  # noqa: E402

generation.install()

__all__ = ["compat", "criterions", "generation", "models", "scoring", "tasks"]
