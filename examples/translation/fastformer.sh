#!/usr/bin/env bash
# Fastformer's additive attention in the encoder (Wu et al. 2021), at the baseline's sizes.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/fastformer.sh data/iwslt14
# on one GPU:          bash examples/translation/fastformer.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch fastformer data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/fastformer --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" fastformer \
    "--arch fastformer_encoder_iwslt_de_en" "$@"
