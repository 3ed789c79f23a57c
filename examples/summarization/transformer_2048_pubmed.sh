#!/usr/bin/env bash
# The Transformer on PubMed, documents of 2,048 tokens.
#
# prepare, once:     python scripts/prepare_summarization.py data/pubmed --train train.txt \
#                        --valid val.txt --test test.txt --fields article_text abstract_text
# train on all GPUs: bash examples/summarization/transformer_2048_pubmed.sh data/pubmed
# on one GPU:        bash examples/summarization/transformer_2048_pubmed.sh data/pubmed \
#                        --processes 1
# evaluate:          bash examples/summarization/evaluate.sh data/pubmed \
#                        runs/transformer_2048_pubmed examples/summarization/generate_pubmed.args
# from YAML:         examples/summarization/config/transformer_2048_pubmed.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_2048_pubmed \
    "--arch transformer_pubmed --max-source-positions 2048 --max-epoch 15" "$@"
