"""`python -m fairseq_plugins [COMMAND]`; without a command, the folder for `--user-dir`."""

import io
import sys

from fairseq_plugins.commands import main

if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):  # a label that the locale cannot write is no error
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
