#!/usr/bin/env bash
# What the recipes here share: train.sh NAME "OPTIONS OF THE MODEL" DATA ... The recipes call it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
source "$root/scripts/common.sh"
source "$root/scripts/environment.sh"

name=${1:?run one of the recipes here, such as fastformer_cnn_dm.sh}
options=${2?}
shift 2
export RECIPE="$name.sh"
exec "$python" "$root/scripts/train_recipe.py" --name "$name" \
    --common "$here/cnn_dm.args" --options="$options" "$@"
