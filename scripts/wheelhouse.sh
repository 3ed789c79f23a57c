#!/usr/bin/env bash
# Collects everything but torch as wheels, for machines without a network. See -h.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

usage() {
    cat <<'EOF'
Usage: bash scripts/wheelhouse.sh DIR [options]

Fills the folder DIR with all that this plugin needs except torch, as wheels for Linux on this
machine's kind of processor. Copy the checkout and DIR to a machine without a network that has
torch, and run there:  bash scripts/install.sh --offline DIR
Rerun to resume: what is in DIR is not fetched again.

  --python VERSION  the Python of the other machine, 3.11 or newer (default: that of the one set up
                    here, else of python3); it need not be installed here
  --torch VERSION   the torch of the other machine (default: the one install.sh would install)
  --without NAMES   leave these out too, with what only they need, as the other machine has them:
                    numpy,scipy,scikit-learn spares half of the space
  --extras NAMES    as in install.sh: plot, onnx, textrank, test, with commas between
  -h, --help        this text
EOF
}

dir="" version="" torch="" without="" extras=""
while [ $# -gt 0 ]; do
    case $1 in
        --python | --torch | --without | --extras) [ $# -ge 2 ] || die "$1 needs a value (see -h)" ;;
    esac
    case $1 in
        --python) version=$2 && shift ;;
        --torch) torch=$2 && shift ;;
        --without) without=$2 && shift ;;
        --extras) extras=$2 && shift ;;
        -h | --help) usage && exit ;;
        -*) die "unknown option $1 (see -h)" ;;
        *)
            [ -z "$dir" ] || die "one folder only, not $dir and $1 (see -h)"
            dir=$1
            ;;
    esac
    shift
done
[ -n "$dir" ] || die "name the folder to fill (see -h)"
extras=$(merge_extras "$extras")
[ "$(uname -s)" = Linux ] || die "wheels are collected for Linux, on Linux"

base=$(bash "$root/scripts/install.sh" --print-python 2>/dev/null || say python3)
command -v "$base" >/dev/null || die "python3 is missing: install it first"
version=${version:-$(python_version "$base")}
supported "$version" || die "--python ${version:-?}: choose 3.11 or newer, such as 3.12"
torch=${torch:-$(default_torch)}
torch=${torch#torch==}
mkdir -p "$dir" || die "the folder $dir cannot be made"
dir=$(cd "$dir" && pwd -P)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# pip judges the markers of requirements by its own Python; uv resolves for any other.
tools="$root/.install/collector"
say "[1/4] pip and uv"
if ! "$tools/bin/python3" -m pip --version >/dev/null 2>&1; then
    "$base" -m venv --clear "$tools" || die "$base cannot make virtual environments: install python3-venv"
fi
collector="$tools/bin/python3"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$collector" -m pip install --quiet "pip>=23.1" "setuptools>=64" wheel uv
index=$("$collector" -m pip config list | sed -n "s/^[^=]*[.]index-url='\(.*\)'$/\1/p" | tail -n 1)

# The C libraries that wheels are made for are no newer than most clusters have.
machine=$(uname -m)
target=(--only-binary=:all: --implementation=cp "--python-version=$version")
for name in manylinux_2_{28,27,26,24,17,12,5} manylinux{2014,2010,1}; do
    target+=("--platform=${name}_$machine")
done

# resolve LIST [OPTIONS]: what is needed beside torch and --without, as name==version lines.
printf '%s\n' "torch,$without" | tr , '\n' >"$scratch/excluded.txt"
say "torch==${torch%%+*}" >"$scratch/constraints.txt"
resolve() {
    local list=$1
    shift
    printf '%s\n' "fairseq-plugins${extras:+[$extras]}" "setuptools>=64" wheel |
        "$tools/bin/uv" pip compile - --quiet --no-header --no-annotate --only-binary :all: \
            --python-version "$version" --python-platform "$machine-manylinux_2_28" \
            --excludes "$scratch/excluded.txt" --constraint "$scratch/constraints.txt" \
            --no-emit-package fairseq-plugins --find-links "$scratch" --find-links "$dir" \
            --output-file "$list" "$@" >/dev/null
}

# antlr4 and rouge-score are published as source only, but are pure Python. fairseq is published for
# one Python, and without its extensions is pure Python, too. Its setup.py asks torch for what compiles.
say "[2/4] Wheels of packages that are published as source"
"$collector" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$dir" \
    --find-links "$dir" "antlr4-python3-runtime==4.9.3" "rouge-score==0.1.2"
if ! compgen -G "$dir/fairseq_fixed-*-none-any.whl" >/dev/null; then
    mkdir -p "$scratch/torch/utils"
    say 'BuildExtension = CppExtension = lambda *a, **k: None' >"$scratch/torch/utils/cpp_extension.py"
    READTHEDOCS=1 PYTHONPATH="$scratch" "$collector" -m pip wheel --quiet --no-deps --no-build-isolation \
        --no-cache-dir --no-binary fairseq-fixed --wheel-dir "$dir" "$(fairseq_requirement)"
fi

say "[3/4] What Python $version needs beside torch $torch"
"$collector" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$scratch" "$root"
resolve "$scratch/list.txt" ${index:+--default-index "$index"}
"$collector" -m pip download --no-deps --requirement "$scratch/list.txt" "${target[@]}" \
    --find-links "$dir" --dest "$dir"

say "[4/4] Is it complete?"
for wheel in "$dir"/*.whl; do
    intact "$collector" "$wheel" || { rm -f "$wheel" && die "$wheel was damaged and is removed: rerun to resume"; }
done
resolve "$scratch/offline.txt" --no-index || die "$dir is not complete (above): rerun to resume"
(cd "$dir" && ls -1sh -- *.whl)
say "Complete for Python $version: $(wc -l <"$scratch/offline.txt") packages, $(du -sh "$dir" | cut -f 1) in $dir"
say "On the other machine, with torch there: bash scripts/install.sh --offline $(basename "$dir")"
