#!/usr/bin/env bash
# Between transformer_ftc and transformer_ftc_deep: 2 blocks of 4 layers, 3 decoder layers.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer_ftc_mid.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer_ftc_mid.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer_ftc_mid data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer_ftc_mid --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_ftc_mid \
    "--arch transformer_ftc_mid_iwslt_de_en" "$@"
