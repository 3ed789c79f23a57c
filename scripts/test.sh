#!/usr/bin/env bash
# Sets everything up (scripts/install.sh), then checks style and types and runs the tests.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# for the edit loop
quick=(tests/contract tests/layers tests/losses tests/search/torch_backend)

case ${1:-} in
    -h | --help)
        cat <<'EOF'
Usage: bash scripts/test.sh [--quick | --slow] [arguments for pytest]
       bash scripts/test.sh --faults [SECONDS] [SEED]
       bash scripts/test.sh --speed [--record]

Sets up what is missing, then runs ruff, mypy and all tests that are not marked as slow. --quick skips
mypy and runs only the fast tests of layers, losses, search and all modules' contract. --slow runs ruff,
mypy and only the tests that are marked as slow: most kills and damaged files, long trainings, kernels for
GPUs and the quickstart. --faults instead runs trainings with random options, random kills and random
damage for SECONDS (600), and prints how many faults were tried, survived, rejected and lost. --speed
instead measures README's ratios of time, in five minutes, and fails if one is worse than the figure stored
for this kind of processor. For another set-up (--offline, --active, ...) run scripts/install.sh first,
with --extras test; its choices are remembered.
EOF
        exit
        ;;
esac

bash "$root/scripts/install.sh" --extras test
python=$(bash "$root/scripts/install.sh" --print-python)
PATH="$(dirname "$python"):$PATH"
export PATH OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
cd "$root"

case ${1:-} in
    --faults) shift && exec "$python" -W ignore -m tests.faults.storm "$@" ;;
    --speed) shift && exec "$python" -m fairseq_plugins benchmark speed --out runs/speed "$@" ;;
esac

failed=()
check() {
    printf '\n== %s\n' "$*"
    "$python" -m "$@" || failed+=("$1")
}
check ruff check .
check ruff format --check .
tier="not slow"
case ${1:-} in
    --quick) shift && set -- "${quick[@]}" "$@" ;;
    --slow) check mypy && shift && tier=slow ;;
    *) check mypy ;;
esac
check pytest -n 2 --dist worksteal -m "$tier" "$@" # two processes; -n 0 for one

if [ ${#failed[@]} -gt 0 ]; then
    printf 'test.sh: failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
