#!/usr/bin/env bash
# The Transformer beside Fastformer on CNN/DailyMail, documents of 512 tokens (table 9).
#
# prepare, once:     python scripts/prepare_cnn_dm.py data/cnn_dm
# train on all GPUs: bash examples/summarization/transformer_cnn_dm.sh data/cnn_dm
# on one GPU:        bash examples/summarization/transformer_cnn_dm.sh data/cnn_dm \
#                        --processes 1
# on a CPU, reduced: bash examples/summarization/transformer_cnn_dm.sh data/cnn_dm \
#                        --settings examples/summarization/reduced_cpu.args
# evaluate:          bash examples/summarization/evaluate.sh data/cnn_dm \
#                        runs/transformer_cnn_dm examples/summarization/generate_cnn_dm.args
# from YAML:         examples/summarization/config/transformer_cnn_dm.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_cnn_dm \
    "--arch transformer_cnn_dm" "$@"
