#!/usr/bin/env bash
# The baseline, fairseq's own transformer_iwslt_de_en: 6 + 6 layers, 512/1024, 4 heads.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer \
    "--arch transformer_iwslt_de_en" "$@"
