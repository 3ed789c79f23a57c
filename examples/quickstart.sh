#!/usr/bin/env bash
# Sets everything up, then trains a model to translate and shows what it learnt. See -h.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
source "$root/scripts/common.sh"

usage() {
    cat <<'EOT'
Usage: bash examples/quickstart.sh [options] [-- more options for fairseq-train]

Installs what is needed, trains a small transformer_ftc from German to English, and prints BLEU,
sample translations and how to translate a sentence of your own. Without --data the text is a
corpus of 10,000 sentence pairs written from a grammar, and no network is used after the
installation. Run it again after an interruption: finished steps are kept, and training goes on
from its last checkpoint.

  --data DIR         raw parallel text: train.de train.en valid.de valid.en test.de test.en
  --source-lang de   --target-lang en    other languages
  --arch ARCH        transformer_ftc (default), fastformer_encoder, mscffn_transformer, fairseq's
                     transformer, ... all at the same small size
  --max-update N     length of training (default: 1000, with --data 2500)
  --vocab-size N     SentencePiece pieces (default: 1500, with --data 4000)
  --seed N           seed of training (default: 1)
  --threads N        processor threads (default: all)
  --out DIR          where to work (default: runs/quickstart in the checkout)
  --no-install       the environment is ready: use its python, skip scripts/install.sh
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

# --- set-up ---------------------------------------------------------------------------------------

if [ "$install" = yes ]; then
    heading "1/5 installing"
    bash "$root/scripts/install.sh"
    python=$(bash "$root/scripts/install.sh" --print-python)
else
    python=$(command -v python || command -v python3) || die "no python here; leave --no-install out"
fi
# threads that wait actively steal the processor from each other where other programs run too:
# training was seen to take 8 times as long
export OMP_NUM_THREADS=$threads OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
plugin="$root/fairseq_plugins"
device=$(
    "$python" - "$arch" 2>/dev/null <<'EOT'
import sys

import torch
from fairseq.models import ARCH_MODEL_REGISTRY

import fairseq_plugins

print("gpu" if torch.cuda.is_available() else "cpu")
sys.exit(0 if sys.argv[1] in ARCH_MODEL_REGISTRY else 3)
EOT
) || case $? in
    3) die "--arch $arch: no such architecture; README.md lists ours, and fairseq has transformer" ;;
    *) die "torch or fairseq does not work in $python; run without --no-install" ;;
esac

mkdir -p "$out"
out=$(cd "$out" && pwd -P)
# two trainings in one folder would spoil each other's checkpoints
exec 9>"$out/lock"
if command -v flock >/dev/null; then
    flock -w 5 9 || die "another run is at work in $out: wait for it, or stop it"
fi
rm -rf "$out"/*.part # what a killed run left unfinished

# in_one_step FOLDER COMMAND...: COMMAND fills FOLDER.part, which becomes FOLDER when it succeeds.
# Each folder is named after all that went into it, so that one that exists is up to date.
in_one_step() {
    local folder=$1
    shift
    if [ -d "$folder" ]; then say "kept: $folder" && return; fi
    rm -rf "$folder.part"
    "$@" "$folder.part"
    mv "$folder.part" "$folder"
}
fingerprint() { sha256sum | cut -c 1-10; }

# --- text -----------------------------------------------------------------------------------------

heading "2/5 raw text"
# shellcheck disable=SC2329 # in_one_step calls it
write_grammar_corpus() { "$python" "$root/scripts/make_grammar_corpus.py" "$1"; }
goal=()
if [ -n "$data" ]; then
    raw=$(cd "$data" && pwd -P)
    : "${updates:=2500}" "${vocab:=4000}"
    batch=2048 warmup=400
else
    raw="$out/grammar-$(cat "$root/scripts/make_grammar_corpus.py" "$root"/scripts/grammar_corpus/*.py | fingerprint)"
    in_one_step "$raw" write_grammar_corpus
    # the grammar is small: less than this means that something is broken
    [ -n "$updates$vocab${extra[*]-}" ] || [ "$arch" != transformer_ftc ] || goal=(--at-least 60)
    : "${updates:=1000}" "${vocab:=1500}"
    batch=1024 warmup=200
fi

heading "3/5 preparing the text"
sources=(--source-lang "$src" --target-lang "$tgt")
for split in train valid test; do sources+=("--$split" "$raw/$split"); done
cleaning=(--max-ratio 9) # short sentences may well be twice as long in one language
# named after all that goes into it, so that one that exists is up to date
text_key=$({
    echo "$src" "$tgt" "$vocab" "${cleaning[@]}"
    cat "$root"/fairseq_plugins/preparation/*.py "$root/scripts/prepare_translation.py"
    # one that is missing is told below
    for split in train valid test; do cat "$raw/$split.$src" "$raw/$split.$tgt" 2>/dev/null; done
} | fingerprint) || true
bin="$out/data-$text_key"
if [ -d "$bin" ]; then
    say "kept: $bin"
else
    "$python" "$root/scripts/prepare_translation.py" "$bin" "${sources[@]}" "${cleaning[@]}" \
        --subword sentencepiece --vocab-size "$vocab" --joined-dictionary 2>&1 | grep -v ^INFO || exit 2
fi

# --- training -------------------------------------------------------------------------------------

settings=(
    --task translation -s "$src" -t "$tgt" --arch "$arch"
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
    --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4
    --decoder-layers 3 --share-all-embeddings --dropout 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates "$warmup"
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --max-tokens "$batch" --max-update "$updates" --seed "$seed"
    ${extra[@]+"${extra[@]}"}
)
# fairseq takes the last of two values: what was given behind -- comes last
saving=(--no-epoch-checkpoints --save-interval-updates 200 --keep-interval-updates 1)
logging=(--log-format simple --log-interval 50)
run="$out/$arch-$(echo "$text_key $device ${settings[*]}" | fingerprint)"
mkdir -p "$run"
on_device=()
[ "$device" = gpu ] || on_device=(--cpu)

heading "4/5 training $arch on the $device, $threads thread(s), $updates updates"
if [ -f "$run/finished" ]; then
    say "kept: $run"
else
    "$python" "$root/scripts/intact_checkpoint.py" "$run"
    # a script that is killed takes its training along
    along=(setpriv --pdeathsig KILL)
    "${along[@]}" true 2>/dev/null || along=()
    TIMEFORMAT='trained in %0R s, %0U s of processor time'
    if ! time ${along[@]+"${along[@]}"} "$python" -m fairseq_cli.train "$bin" \
        --user-dir "$plugin" --num-workers 0 "${saving[@]}" "${logging[@]}" \
        ${on_device[@]+"${on_device[@]}"} "${settings[@]}" --save-dir "$run" 2>&1 |
        tee -a "$run/train.log" |
        "$python" "$root/scripts/training_progress.py" --updates "$updates"; then
        grep -vE 'Warning|^ |INFO' "$run/train.log" | tail -n 3 >&2
        die "training failed; its log is $run/train.log"
    fi
    touch "$run/finished"
fi

# --- test -----------------------------------------------------------------------------------------

heading "5/5 translating the test set, beam 5"
"$python" -m fairseq_cli.generate "$bin" --user-dir "$plugin" --path "$run/checkpoint_best.pt" \
    ${on_device[@]+"${on_device[@]}"} --beam 5 --remove-bpe sentencepiece --max-tokens 4096 \
    --num-workers 0 --log-format simple --log-interval 10 >"$run/generate.log.part" 2>"$run/generate.err" || {
    tail -n 3 "$run/generate.err" >&2
    die "fairseq-generate failed; its log is $run/generate.err"
}
mv "$run/generate.log.part" "$run/generate.log"
status=0
"$python" "$root/scripts/score_generation.py" "$run/generate.log" --source "$raw/test.$src" \
    --reference "$raw/test.$tgt" --json "$run/scores.json" ${goal[@]+"${goal[@]}"} || status=$?

sentence='Meine Schwester fährt morgen mit dem Zug nach Berlin.'
[ -z "$data" ] || sentence=$(head -n 1 "$raw/test.$src")
sentence=${sentence//\'/\'\\\'\'}
quoted() { printf '%q' "$1"; } # a folder's name may hold spaces
cat <<EOT

Translate a sentence of your own:

    echo '$sentence' |
        $(quoted "$python") $(quoted "$root/scripts/translate.py") --model $(quoted "$run")

All of it took $((SECONDS - started)) s.
EOT
exit "$status"
