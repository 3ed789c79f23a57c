#!/usr/bin/env bash
# Trains fairseq_plugins/recipes/summarization/fastformer_copy_pubmed.yaml; -h lists the options.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../../scripts/plugin.sh" train fastformer_copy_pubmed "$@"
