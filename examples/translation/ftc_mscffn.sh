#!/usr/bin/env bash
# TransformerFTC with MSCFFN in encoder and decoder.
#
# prepare, once:       python scripts/prepare_iwslt14.py data/iwslt14
# train on all GPUs:   bash examples/translation/ftc_mscffn.sh data/iwslt14
# on one GPU:          bash examples/translation/ftc_mscffn.sh data/iwslt14 --processes 1
# on several machines: sbatch --nodes 2 examples/translation/slurm.sbatch ftc_mscffn data/iwslt14
# evaluate:            bash scripts/evaluate.sh data/iwslt14 runs/ftc_mscffn --last 10
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/train.sh" ftc_mscffn \
    "--arch transformer_ftc_iwslt_de_en --encoder-ffn mscffn --decoder-ffn mscffn" "$@"
