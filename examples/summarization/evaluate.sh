#!/usr/bin/env bash
# ROUGE of a trained model: writes the summaries of the test documents and scores them.
#
#   bash examples/summarization/evaluate.sh DATA RUN SETTINGS [options of fairseq-generate]
#   bash examples/summarization/evaluate.sh data/cnn_dm runs/fastformer_cnn_dm \
#       examples/summarization/generate_cnn_dm.args
#
# DATA is the prepared folder, RUN the --save-dir of a training, SETTINGS how to generate. Documents
# are read as far as training read them. Summaries (D-<number>) and scores are kept in
# RUN/evaluation; with --gen-subset valid, those of valid. On a GPU add --fp16 for speed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
source "$root/scripts/common.sh"

[ $# -ge 3 ] || die "usage: evaluate.sh DATA RUN SETTINGS [options of fairseq-generate]"
data=$1 run=$2 settings=$3
shift 3
[ -d "$data" ] || die "$data: no such folder; scripts/prepare_*.py makes one"
[ -f "$run/checkpoint_best.pt" ] || die "$run has no checkpoint_best.pt: train with a recipe here"
[ -f "$settings" ] || die "$settings: no such file; generate_*.args are in $here"
source "$root/scripts/environment.sh"

mapfile -t words < <(PYTHONPATH="$root/scripts:$PYTHONPATH" "$python" - "$settings" <<'EOT'
import sys
from pathlib import Path

from recipe_settings import read_settings

print("\n".join(read_settings(Path(sys.argv[1]))))
EOT
)
[ ${#words[@]} -gt 0 ] || die "$settings cannot be read"
part="$run/evaluation.part"
rm -rf "$part"
"$python" -m fairseq_cli.generate "$data" --user-dir "$root/fairseq_plugins" \
    --path "$run/checkpoint_best.pt" --results-path "$part" "${words[@]}" "$@"
mkdir -p "$run/evaluation"
for file in "$part"/*; do
    mv "$file" "$run/evaluation/"
    file="$run/evaluation/${file##*/}"
    # the scores end the file
    sed -n '/Generate .* with beam/,$p' "$file"
    say "summaries and scores: $file"
done
rmdir "$part"
