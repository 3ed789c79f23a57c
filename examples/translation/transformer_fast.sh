#!/usr/bin/env bash
# Trains fairseq_plugins/recipes/translation/transformer_fast.yaml; -h lists the options.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../../scripts/plugin.sh" train transformer_fast "$@"
