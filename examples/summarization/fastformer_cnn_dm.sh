#!/usr/bin/env bash
# Fastformer on CNN/DailyMail, documents of 2,048 tokens (Wu et al. 2021, table 9).
#
# prepare, once:     python scripts/prepare_cnn_dm.py data/cnn_dm
# train on all GPUs: bash examples/summarization/fastformer_cnn_dm.sh data/cnn_dm
# on one GPU:        bash examples/summarization/fastformer_cnn_dm.sh data/cnn_dm \
#                        --processes 1
# on a CPU, reduced: bash examples/summarization/fastformer_cnn_dm.sh data/cnn_dm \
#                        --settings examples/summarization/reduced_cpu.args
# evaluate:          bash examples/summarization/evaluate.sh data/cnn_dm \
#                        runs/fastformer_cnn_dm examples/summarization/generate_cnn_dm.args
# from YAML:         examples/summarization/config/fastformer_cnn_dm.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" fastformer_cnn_dm \
    "--arch fastformer_encoder_cnn_dm" "$@"
