#!/usr/bin/env python3
"""Launcher of `python -m fairseq_plugins reproduce ftc`."""

import sys

try:
    from fairseq_plugins.commands import main
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed in this Python: run bash scripts/install.sh")

sys.exit(main(["reproduce", "ftc", *sys.argv[1:]]))
