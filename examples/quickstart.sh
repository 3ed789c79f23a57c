#!/usr/bin/env bash
# Sets everything up, then trains a model to translate and shows what it learnt. See -h.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
source "$root/scripts/common.sh"

usage() {
    cat <<'EOT'
Usage: bash examples/quickstart.sh [options] [-- more options for fairseq-train]

Translates five sentences with a bundled model, installs torch and fairseq, trains a small
transformer_ftc from German to English, and prints BLEU, sample translations and how to translate a
sentence of your own. Without --data the text is 20,000 sentence pairs of Tatoeba in
examples/quickstart, and no network is used after the installation. About five minutes on one core.
Rerun to resume: finished steps are kept.

  --data DIR         raw parallel text: train.de train.en valid.de valid.en test.de test.en
  --source-lang de   --target-lang en    other languages
  --arch ARCH        transformer_ftc (default), fastformer_encoder, mscffn_transformer, fairseq's
                     transformer, ... all at the same small size
  --max-update N     length of training (default: 1200, with --data 2500)
  --vocab-size N     SentencePiece subwords (default: 2500, with --data 4000)
  --seed N           seed of training (default: 1)
  --threads N        processor threads (default: all)
  --out DIR          where to work (default: runs/quickstart in the checkout)
  --no-install       use the active environment, without running scripts/install.sh
EOT
}

data='' src=de tgt=en arch=transformer_ftc updates='' vocab='' seed=1 threads=$(nproc)
out="$root/runs/quickstart" install=yes
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage && exit 0 ;;
        --no-install) install=no && shift && continue ;;
        --) shift && break ;;
        --data | --source-lang | --target-lang | --arch | --max-update | --vocab-size | --seed | --threads | --out)
            [ $# -gt 1 ] || die "$1 needs a value; see -h" ;;
        *) die "unknown option $1; see -h" ;;
    esac
    case $1 in
        --data) data=$2 ;;
        --source-lang) src=$2 ;;
        --target-lang) tgt=$2 ;;
        --arch) arch=$2 ;;
        --max-update) updates=$2 ;;
        --vocab-size) vocab=$2 ;;
        --seed) seed=$2 ;;
        --threads) threads=$2 ;;
        --out) out=$2 ;;
    esac
    shift 2
done
extra=("$@")
for word in ${extra[@]+"${extra[@]}"}; do
    case $word in --arch | --arch=*) die "give --arch before --: folders are named after it" ;; esac
done
# number OPTION VALUE LEAST
number() {
    case $2 in '' | *[!0-9]*) die "$1 '$2' is no whole number; see -h" ;; esac
    [ "$2" -ge "$3" ] || die "$1 $2: give at least $3"
}
number --max-update "${updates:-1}" 1
number --vocab-size "${vocab:-1}" 1
number --threads "$threads" 1
number --seed "$seed" 0
[ -z "$data" ] || [ -d "$data" ] || die "--data $data: no such folder"

started=$SECONDS
heading() { printf '\n== %s (after %d s)\n' "$*" $((SECONDS - started)); }

# end the training if this script is killed
along=(setpriv --pdeathsig TERM)
"${along[@]}" true 2>/dev/null || along=()
plugin() { ${along[@]+"${along[@]}"} "$python" -m fairseq_plugins "$@"; }

said='Guten Morgen! Hast du gut geschlafen?
Meine Schwester fährt morgen mit dem Zug nach Berlin.
Wo kann ich hier etwas Gutes essen?
Ich habe meinen Schlüssel zu Hause vergessen.
Wenn es nicht regnet, gehen wir schwimmen.'
show_model_in_the_box() {
    if translated=$(plugin translate --model tatoeba-de-en <<<"$said" 2>/dev/null); then
        heading "a bundled model: tatoeba-de-en, trained on all of Tatoeba"
        paste -d '\n' <(echo "$said") <(awk '{ print "    " $0 }' <<<"$translated")
    fi
}

if [ "$install" = yes ]; then
    set_up() { bash "$root/scripts/install.sh" "$@"; }
    if [ -z "$data" ]; then # the model runs without torch, which takes minutes to install
        heading "installing what runs models"
        set_up --print-python >/dev/null 2>&1 || set_up --device none
        python=$(set_up --print-python)
        PYTHONPATH=$root show_model_in_the_box
    fi
    heading "installing torch and fairseq"
    set_up
    python=$(set_up --print-python)
else
    python=$(command -v python || command -v python3) || die "no python here: run it without --no-install"
fi
export OMP_NUM_THREADS=$threads PYTHONUNBUFFERED=1 PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c 'import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, ["torch", "fairseq"])))' ||
    die "torch or fairseq is missing in $python; run without --no-install"
if [ "$arch" != transformer_ftc ]; then
    "$python" - "$arch" 2>/dev/null <<'EOT' || die "--arch $arch: no such architecture; README.md lists ours, and fairseq has transformer"
import sys

import fairseq_plugins
from fairseq.models import ARCH_MODEL_REGISTRY

sys.exit(sys.argv[1] not in ARCH_MODEL_REGISTRY)
EOT
fi

mkdir -p "$out"
out=$(cd "$out" && pwd -P)
exec 9>"$out/lock"
if command -v flock >/dev/null; then
    status=0
    flock -w 10 9 || status=$? # other failures: this file system has no locks
    [ "$status" -ne 1 ] || die "another run is at work in $out: wait for it, or stop it"
fi
# names of folders contain a checksum of their inputs, so a folder that exists is up to date
fingerprint() { sha256sum | cut -c 1-10; }

goal=() size=() raw="$root/examples/quickstart"
if [ -n "$data" ]; then
    raw=$(cd "$data" && pwd -P)
    : "${updates:=2500}" "${vocab:=4000}"
    size=(--dropout 0.1) # a small text is read many times
else
    # a lower BLEU means that something is broken
    [ -n "$updates$vocab${extra[*]-}" ] || [ "$arch" != transformer_ftc ] || goal=(--at-least 15)
    : "${updates:=1200}" "${vocab:=2500}"
    [ "$install" = yes ] || show_model_in_the_box
fi

heading "preparing the text"
# short sentences may be nine times as long in one language
prepare=(--source-lang "$src" --target-lang "$tgt" --vocab-size "$vocab" --joined-dictionary --max-ratio 9)
text_key=$({
    echo "${prepare[@]}"
    cat "$root"/fairseq_plugins/{data,text}/*.py
    # prepare-translation reports missing files
    for split in train valid test; do cat "$raw/$split.$src" "$raw/$split.$tgt" 2>/dev/null; done
} | fingerprint) || true
for split in train valid test; do prepare+=("--$split" "$raw/$split"); done
bin="$out/data-$text_key"
if [ -d "$bin" ]; then
    say "kept: $bin"
else
    plugin prepare-translation "$bin" "${prepare[@]}"
fi

heading "training $arch, $threads thread(s)"
settings=(--arch "$arch" --max-update "$updates" --seed "$seed" ${size[@]+"${size[@]}"} ${extra[@]+"${extra[@]}"})
run="$out/$arch-$({
    echo "$text_key ${settings[*]}"
    cat "$root/fairseq_plugins/recipes/translation/quickstart.yaml"
} | fingerprint)"
plugin train quickstart "$bin" --save-dir "$run" -- "${settings[@]}"

heading "translating the test set, beam 5"
status=0
plugin evaluate "$bin" "$run" --examples 4 ${goal[@]+"${goal[@]}"} -- --num-workers 0 || status=$?

sentence='Ich habe meinen Schlüssel vergessen.'
[ -z "$data" ] || sentence=$(head -n 1 "$raw/test.$src")
sentence=${sentence//\'/\'\\\'\'}
quoted() { printf '%q' "$1"; } # a folder's name may hold spaces
path=""
[ "$install" = yes ] || path="PYTHONPATH=$(quoted "$root") " # the plugin itself may not be installed
cat <<EOT

Translate a sentence of your own:

    echo '$sentence' |
        $path$(quoted "$python") -m fairseq_plugins translate --model $(quoted "$run")

All of it took $((SECONDS - started)) s.
EOT
exit "$status"
