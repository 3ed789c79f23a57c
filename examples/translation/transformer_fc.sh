#!/usr/bin/env bash
# Feature compression, 2 blocks of 3 layers (TransformerFTC, table 1, Feature 2 x 3).
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/transformer_fc.sh data/iwslt14
# on one GPU:          bash examples/translation/transformer_fc.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch transformer_fc data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/transformer_fc --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" transformer_fc \
    "--arch transformer_fc_iwslt_de_en" "$@"
