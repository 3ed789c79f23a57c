"""`python -m fairseq_plugins [COMMAND]`; without a command, the folder for `--user-dir`."""

import sys

from fairseq_plugins.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
