# Sourced by scripts that only run Python, after common.sh, with the checkout in $root: sets $python,
# that of scripts/install.sh where it was run, else the one in PATH.
# shellcheck shell=bash
: "${root:?}"

python=$(bash "$root/scripts/install.sh" --print-python 2>/dev/null) ||
    python=$(command -v python || command -v python3) ||
    die "no python here: set one up with bash scripts/install.sh"
"$python" -c 'import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, ["torch", "fairseq"])))' ||
    die "torch or fairseq is missing in $python: set it up with bash scripts/install.sh"
# threads that wait actively steal the processor from each other where other programs run too
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}" PYTHONUNBUFFERED=1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
