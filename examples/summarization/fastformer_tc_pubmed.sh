#!/usr/bin/env bash
# Fastformer with time compression on PubMed: the second of 2 encoder layers sees half the
# positions. Documents of 4,096 tokens.
#
# prepare, once:     python scripts/prepare_summarization.py data/pubmed --train train.txt \
#                        --valid val.txt --test test.txt --fields article_text abstract_text
# train on all GPUs: bash examples/summarization/fastformer_tc_pubmed.sh data/pubmed
# on one GPU:        bash examples/summarization/fastformer_tc_pubmed.sh data/pubmed \
#                        --processes 1
# evaluate:          bash examples/summarization/evaluate.sh data/pubmed \
#                        runs/fastformer_tc_pubmed examples/summarization/generate_pubmed.args
# from YAML:         examples/summarization/config/fastformer_tc_pubmed.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" fastformer_tc_pubmed \
    "--arch fastformer_tc_pubmed --max-epoch 15" "$@"
