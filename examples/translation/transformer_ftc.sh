#!/usr/bin/env bash
# Feature and time compression, 2 blocks of 3 layers (TransformerFTC, table 1, Feature+Time 2 x 3).
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer_ftc.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer_ftc.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer_ftc data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer_ftc --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_ftc \
    "--arch transformer_ftc_iwslt_de_en" "$@"
