#!/usr/bin/env bash
# BLEU and chrF of a trained model, and whether it differs from another one. See -h.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
source "$root/scripts/common.sh"
source "$root/scripts/environment.sh"

exec "$python" "$root/scripts/evaluate.py" "$@"
