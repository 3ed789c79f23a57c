#!/usr/bin/env bash
# Time compression, 2 blocks of 3 layers (TransformerFTC, table 1, Time 2 x 3).
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer_tc.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer_tc.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer_tc data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer_tc --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_tc \
    "--arch transformer_tc_iwslt_de_en" "$@"
