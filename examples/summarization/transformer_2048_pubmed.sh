#!/usr/bin/env bash
# Trains fairseq_plugins/recipes/summarization/transformer_2048_pubmed.yaml; -h lists the options.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../../scripts/plugin.sh" train transformer_2048_pubmed "$@"
