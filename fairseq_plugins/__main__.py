"""`python -m fairseq_plugins [COMMAND]`; without a command, the folder for `--user-dir`."""

import sys

from fairseq_plugins.commands import end_when_terminated, main

if __name__ == "__main__":
    end_when_terminated()
    sys.exit(main(sys.argv[1:]))
