#!/usr/bin/env bash
# The Transformer beside Fastformer on PubMed, documents of 512 tokens (table 9).
#
# prepare, once:     python scripts/prepare_summarization.py data/pubmed --train train.txt \
#                        --valid val.txt --test test.txt --fields article_text abstract_text
# train on all GPUs: bash examples/summarization/transformer_pubmed.sh data/pubmed
# on one GPU:        bash examples/summarization/transformer_pubmed.sh data/pubmed \
#                        --processes 1
# evaluate:          bash examples/summarization/evaluate.sh data/pubmed \
#                        runs/transformer_pubmed examples/summarization/generate_pubmed.args
# from YAML:         examples/summarization/config/transformer_pubmed.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_pubmed \
    "--arch transformer_pubmed --max-epoch 15" "$@"
