#!/usr/bin/env bash
# Fastformer with time compression on CNN/DailyMail: the last 2 of 4 encoder layers see half the
# positions. Documents of 2,048 tokens.
#
# prepare, once:     python scripts/prepare_cnn_dm.py data/cnn_dm
# train on all GPUs: bash examples/summarization/fastformer_tc_cnn_dm.sh data/cnn_dm
# on one GPU:        bash examples/summarization/fastformer_tc_cnn_dm.sh data/cnn_dm \
#                        --processes 1
# on a CPU, reduced: bash examples/summarization/fastformer_tc_cnn_dm.sh data/cnn_dm \
#                        --settings examples/summarization/reduced_cpu.args
# evaluate:          bash examples/summarization/evaluate.sh data/cnn_dm \
#                        runs/fastformer_tc_cnn_dm examples/summarization/generate_cnn_dm.args
# from YAML:         examples/summarization/config/fastformer_tc_cnn_dm.yaml says how
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" fastformer_tc_cnn_dm \
    "--arch fastformer_tc_cnn_dm" "$@"
