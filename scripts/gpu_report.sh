#!/usr/bin/env bash
# CUDA tests, the goals for a GPU, and the table of translation. Rerun to resume. See -h.
exec bash "$(dirname "${BASH_SOURCE[0]}")/plugin.sh" gpu-report "$@"
