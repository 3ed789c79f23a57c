#!/usr/bin/env bash
# Trains fairseq_plugins/recipes/summarization/transformer_2048_cnn_dm.yaml; -h lists the options.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../../scripts/plugin.sh" train transformer_2048_cnn_dm "$@"
