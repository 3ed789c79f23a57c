"""The commands with the laboratory's own models and test sets: python -m fairseq_plugins.lab."""

import sys

from fairseq_plugins import lab
from fairseq_plugins.__main__ import run

if __name__ == "__main__":
    lab.register()
    sys.exit(run())
