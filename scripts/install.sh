#!/usr/bin/env bash
# Sets up everything the plugin needs. Rerun to resume; a finished set-up is only checked. See -h.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv="$root/.venv" state="$root/.install" log="$root/.install/log"

usage() {
    cat <<'EOF'
Usage: bash scripts/install.sh [options]

Makes a virtual environment, .venv in the checkout, with torch, fairseq and this plugin, for Python
3.11 or newer. Nothing is compiled. A torch that the Python already has is kept. Rerun to resume.

  --python PY        the interpreter to use (default: python3 if it fits, else python3.12 ...)
  --active           install into the active Python (a virtual or conda environment, a
                     container) instead of making .venv; remembered
  --offline DIR      use no network but DIR, a folder that scripts/wheelhouse.sh filled; torch
                     must be installed, or a wheel in DIR
  --extras NAMES     also plot (matplotlib, for plots), onnx (to export models), textrank
                     (a baseline), test (all of these and what scripts/test.sh needs), or several
                     with commas between; remembered
  --device D         torch for cpu, gpu, or auto (default: gpu where nvidia-smi sees one); none: only exports run
  --torch SPEC       another torch than the default: a version or a wheel
  --torch-index URL  take torch from this package index (also: TORCH_INDEX_URL)
  --print-python     print the path of the Python that was set up, and do nothing else
  -h, --help         this text

The package index is pip's own (PIP_INDEX_URL, pip.conf). The log is .install/log.
EOF
}

# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

given_python="" active=no offline="" extras="" device=auto torch_spec="" torch_index=${TORCH_INDEX_URL:-} print_python=no
while [ $# -gt 0 ]; do
    case $1 in
        --active) active=yes && shift && continue ;;
        --print-python) print_python=yes && shift && continue ;;
        -h | --help) usage && exit ;;
    esac
    [ $# -ge 2 ] || case $1 in --python | --offline | --extras | --device | --torch | --torch-index) die "$1 needs a value (see -h)" ;; esac
    case $1 in
        --python) given_python=$2 ;;
        --offline) offline=$2 ;;
        --extras) extras=$2 ;;
        --device) device=$2 ;;
        --torch) torch_spec=$2 ;;
        --torch-index) torch_index=$2 ;;
        *) die "unknown option $1 (see -h)" ;;
    esac
    shift 2
done
case $device in auto | cpu | gpu | none) ;; *) die "--device $device: choose auto, cpu, gpu or none" ;; esac
extras=$(merge_extras "$extras")
if [ -n "$offline" ]; then
    [ -d "$offline" ] || die "--offline $offline: there is no such folder; scripts/wheelhouse.sh makes one"
    compgen -G "$offline/*.whl" >/dev/null || die "--offline $offline: it holds no wheels; scripts/wheelhouse.sh collects them"
    offline=$(cd "$offline" && pwd -P)
fi
if [ "$device" = auto ]; then if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then device=gpu; else device=cpu; fi; fi

# A line of what the last set-up left: its Python, a fingerprint, the extras, the checkout. In a copy
# of a checkout it names the original's .venv, which is not this one's to change.
remembered() {
    local lines=()
    if [ -f "$state/environment" ]; then mapfile -t lines <"$state/environment"; fi
    case ${lines[0]:-} in "$venv"/*) ;; */.venv/bin/python3) [ "${lines[3]:-}" = "$root" ] || return 0 ;; esac
    say "${lines[$1]:-}"
}
if [ "$print_python" = yes ]; then
    [ -x "$(remembered 0)" ] || die "nothing is set up yet: run bash scripts/install.sh"
    remembered 0 && exit
fi
if [ -n "$given_python" ]; then check_python "$given_python"; fi

mkdir -p "$state" || die "the folder $root cannot be written"
if command -v flock >/dev/null; then # pip inherits the lock, so a pip that outlives us holds it
    exec 9>"$state/lock"
    status=0
    flock -n 9 || status=$? # 1: it is held; other failures: this file system has no locks
    if [ "$status" -eq 1 ]; then say "Another set-up of this checkout is running: waiting for it." && flock 9; fi
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Without options, reuse the environment of the last run; a .venv that was moved or lost its Python is made again.
works() { grep -qsF "$venv" "$venv/bin/activate" && "$venv/bin/python3" -m pip --version >/dev/null 2>&1; }
python="$venv/bin/python3"
if [ "$active" = yes ]; then
    check_python "${given_python:-python3}"
    python=$("${given_python:-python3}" -c 'import sys; print(sys.executable)')
elif [ -z "$given_python" ] && [ -x "$(remembered 0)" ]; then
    python=$(remembered 0)
fi
own() { [ "$(dirname "$python")" = "$venv/bin" ]; }
if own; then python="$venv/bin/python3"; fi
if own && works && [ -n "$given_python" ] && [ "$(python_version "$given_python")" != "$(python_version "$python")" ]; then
    die "--python $given_python: .venv has Python $(python_version "$python"); remove it first (rm -r $venv)"
fi
extras=$(merge_extras "$(remembered 2)" "$extras") # keep the extras of earlier runs
fingerprint=$(cat "$root"/{setup.py,pyproject.toml,fairseq_plugins/version.py,scripts/{install,common,environment}.sh} | cksum)
if { ! own || works; } && [ "$(printf '%s\n' "$python" "$fingerprint" "$extras" "$root")" = "$(cat "$state/environment" 2>/dev/null)" ]; then
    say "Everything is there."
    if "$python" "$root/scripts/selfcheck.py"; then exit; fi
    say "The self-check failed: setting up again."
fi
rm -f "$state/environment" && : >"$log"

say "[1/4] Python"
if own && ! works; then make_venv; fi
supported "$(python_version "$python")" || die "Python $(python_version "$python") ($python) is too old: 3.11 or newer is needed; remove it (rm -r $venv), or give another with --python PY"
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip: install it ($python -m ensurepip), then rerun"
say "      $(python_version "$python"), $python"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off
if own; then
    forget_half_installed
    export PIP_NO_COMPILE=1 # Python compiles what it imports; all of torch takes half a minute
fi
if [ -n "$offline" ]; then
    unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS && export PIP_CONFIG_FILE=/dev/null
fi
if [ "$device" = none ]; then install_without_torch && exit; fi

say "[2/4] torch"
torch=$(package_version "$python" torch)
if [ -z "$torch" ]; then
    install_torch
    torch=$(package_version "$python" torch)
elif [ -n "$torch_spec$torch_index" ]; then
    say "      an installed torch is never replaced. To change it, uninstall it first: $python -m pip uninstall torch"
fi
case $torch in [01].* | 2.[0-9].*) die "torch $torch in $python is too old: 2.10 or newer is needed" ;; esac
say "      $torch"
say "torch==$torch" >"$scratch/constraints.txt"
export PIP_CONSTRAINT="${PIP_CONSTRAINT:+$PIP_CONSTRAINT }$scratch/constraints.txt"

say "[3/4] fairseq, the plugin and what they need"
run "installing the build tools" pip_install "setuptools>=64" wheel
export READTHEDOCS=1 # fairseq's setup.py then compiles nothing; \`compat\` has what it would compile
run "installing fairseq and the plugin" pip_install --no-build-isolation --editable "$root${extras:+[$extras]}"

say "[4/4] Self-check"
"$python" "$root/scripts/selfcheck.py" || die "the set-up is done but its self-check failed; the line above says why (log: $log)"
printf '%s\n' "$python" "$fingerprint" "$extras" "$root" >"$state/environment"
if own; then say "Done. To use it in a shell: source \"$venv/bin/activate\""; else say "Done."; fi
