#!/usr/bin/env bash
# MSCFFN for every feed-forward network (Tang & Yang 2023), at the baseline's sizes.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/mscffn.sh data/iwslt14
# on one GPU:          bash examples/translation/mscffn.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch mscffn data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/mscffn --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" mscffn \
    "--arch mscffn_transformer_iwslt_de_en" "$@"
