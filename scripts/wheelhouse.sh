#!/usr/bin/env bash
# Collects everything but torch as wheels, for machines without a network. See -h.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

usage() {
    cat <<'EOF'
Usage: bash scripts/wheelhouse.sh DIR [options]

Fills the folder DIR with what this plugin needs but torch, as wheels for Linux on this machine's
kind of processor. Carry the checkout and DIR to a machine without a network that has torch, and
run there:  bash scripts/install.sh --offline DIR
Run again at any time: what DIR holds already is not fetched again.

  --python VERSION  the Python of the other machine, 3.8 to 3.12 (default: the one set up here, else
                    that of python3); for 3.9 to 3.11 fairseq is compiled here, so that Python
                    must be set up here (scripts/install.sh); 3.12 needs nothing
  --torch VERSION   the torch of the other machine (default: the one install.sh would install)
  --extras plot     also matplotlib, for the plots of scripts/
  --extras test     the same, and what scripts/test.sh needs
  -h, --help        this text
EOF
}

dir="" version="" torch="" extras=""
while [ $# -gt 0 ]; do
    case $1 in
        --python | --torch | --extras) [ $# -ge 2 ] || die "$1 needs a value (see -h)" ;;
    esac
    case $1 in
        --python) version=$2 && shift ;;
        --torch) torch=$2 && shift ;;
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
case $extras in "" | plot | test) ;; *) die "--extras $extras: choose plot or test" ;; esac
[ "$(uname -s)" = Linux ] || die "wheels are collected for Linux, on Linux"

own_python=$(bash "$root/scripts/install.sh" --print-python 2>/dev/null || true)
own_version=$([ -z "$own_python" ] || python_version "$own_python")
base=${own_python:-python3}
command -v "$base" >/dev/null || die "python3 is missing: install it first"
version=${version:-${own_version:-$(python_version "$base")}}
supported "$version" || die "--python ${version:-?}: choose 3.8, 3.9, 3.10, 3.11 or 3.12"
torch=${torch:-$(default_torch "$version")}
torch=${torch#torch==}
fairseq=$(fairseq_package "$version")
if compiles_fairseq "$version" && [ "$own_version" != "$version" ]; then
    die "$fairseq has no ready build for Python $version, so it is compiled here: first run bash scripts/install.sh --python python$version (or choose --python 3.12)"
fi
mkdir -p "$dir" || die "the folder $dir cannot be made"
dir=$(cd "$dir" && pwd -P)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A Python of any version collects for any other: collect.py tells its pip which to think of.
tools="$root/.install/collector"
say "[1/5] pip to collect with"
if ! "$tools/bin/python3" -m pip --version >/dev/null 2>&1; then
    "$base" -m venv --clear "$tools" || die "$base cannot make virtual environments: install python3-venv"
fi
collector="$tools/bin/python3"
"$collector" -m pip install --quiet --disable-pip-version-check "pip>=23.1,<24.1" "setuptools>=64" wheel

# The wheels that fit are listed in the file $1; the rest are options for pip.
write_constraints "${torch%%+*}+there" >"$scratch/constraints.txt"
resolve() {
    "$collector" "$root/scripts/collect.py" resolve --python "$version" --torch "${torch%%+*}+there" "$@" \
        --disable-pip-version-check --constraint "$scratch/constraints.txt" --find-links "$dir" "${needs[@]}"
}

# antlr4 and rouge-score are published as source only, but are pure Python.
say "[2/5] Wheels of pure Python packages that are published as source"
if [ "$fairseq" = fairseq ]; then antlr=4.8; else antlr=4.9.3; fi
"$collector" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$dir" \
    --find-links "$dir" "antlr4-python3-runtime==$antlr" "rouge-score==0.1.2"

say "[3/5] $fairseq"
requirement=$(fairseq_requirement "$version")
if compiles_fairseq "$version"; then
    if compgen -G "$dir/${fairseq//-/_}-${requirement#*==}-*cp${version/./}-*.whl" >/dev/null; then
        say "      $requirement: compiled before"
    else
        say "      compiling $requirement: a few minutes"
        build_fairseq "$own_python" wheel --disable-pip-version-check --no-deps --wheel-dir "$dir" "$requirement"
    fi
else
    say "      $requirement: published as a wheel"
fi

say "[4/5] All that is needed on Python $version beside torch $torch"
"$collector" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$scratch" "$root"
plugin=$(compgen -G "$scratch/fairseq_plugins-*.whl")
needs=("$plugin${extras:+[$extras]}" "setuptools>=64" wheel cython "pip>=23.1,<24.1")
resolve "$scratch/list.txt"
"$collector" "$root/scripts/collect.py" download --python "$version" "$scratch/list.txt" \
    --disable-pip-version-check --find-links "$dir" --dest "$dir"

say "[5/5] Is it complete?"
for wheel in "$dir"/*.whl; do
    "$collector" -m zipfile -t "$wheel" >/dev/null 2>&1 || { rm -f "$wheel" && die "$wheel was damaged and is removed: run this again"; }
done
PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' PIP_EXTRA_INDEX_URL='' resolve "$scratch/offline.txt" --no-index --quiet ||
    die "$dir is not complete (above); run this again"
(cd "$dir" && ls -1sh -- *.whl)
say "Complete for Python $version: $(wc -l <"$scratch/offline.txt") packages, $(du -sh "$dir" | cut -f 1) in $dir"
say "On the other machine, with torch there: bash scripts/install.sh --offline $(basename "$dir")"
