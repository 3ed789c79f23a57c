#!/usr/bin/env bash
# Scores of a trained model, and whether it differs from another one. See -h.
exec bash "$(dirname "${BASH_SOURCE[0]}")/plugin.sh" evaluate "$@"
