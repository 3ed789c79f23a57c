#!/usr/bin/env bash
# Run python -m fairseq_plugins "$@" of this checkout, with the Python that scripts/install.sh set up,
# otherwise with the one in PATH.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
source "$root/scripts/common.sh"

python=$(bash "$root/scripts/install.sh" --print-python 2>/dev/null) ||
    python=$(command -v python || command -v python3) ||
    die "no python here: set one up with bash scripts/install.sh"
"$python" -c 'import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, ["torch", "fairseq"])))' ||
    die "torch or fairseq is missing in $python: set it up with bash scripts/install.sh"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m fairseq_plugins "$@"
