#!/usr/bin/env bash
# TransformerFTC trained with R-Drop (Liang et al. 2021), alpha 5 as in the paper. Each batch goes
# through the model twice: where memory is small, --tokens-per-process 2048.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/ftc_rdrop.sh data/iwslt14
# on one GPU:          bash examples/translation/ftc_rdrop.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch ftc_rdrop data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/ftc_rdrop --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" ftc_rdrop \
    "--arch transformer_ftc_iwslt_de_en \
    --criterion label_smoothed_cross_entropy_rdrop --rdrop-alpha 5" "$@"
