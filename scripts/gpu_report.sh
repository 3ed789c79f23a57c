#!/usr/bin/env bash
# Measurements on a GPU, in prepared runs of at most 8 minutes. Rerun to resume. See -h.
exec bash "$(dirname "${BASH_SOURCE[0]}")/plugin.sh" gpu-report "$@"
