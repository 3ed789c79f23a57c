#!/usr/bin/env bash
# A deep compressed encoder, 2 blocks of 6 layers, and a decoder of one layer.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer_ftc_deep.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer_ftc_deep.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer_ftc_deep data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer_ftc_deep --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_ftc_deep \
    "--arch transformer_ftc_deep_iwslt_de_en" "$@"
