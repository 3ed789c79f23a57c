#!/usr/bin/env bash
# Sets up everything the plugin needs. Rerun to resume; a finished set-up is only checked. See -h.
set -euo pipefail

unset CDPATH # cd would print the folder
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv="$root/.venv"
state="$root/.install" # the log, the lock and what was set up
log="$state/log"
steps=5

usage() {
    cat <<'EOF'
Usage: bash scripts/install.sh [options]

Makes a virtual environment, .venv in the checkout, with torch, fairseq and this plugin, for Python
3.11 or newer. A torch that the Python already has is kept.
Rerun to resume.

  --python PY        the interpreter to use (default: python3 if it fits, else python3.12 ...)
  --active           install into the active Python (a virtual or conda environment, a
                     container) instead of making .venv; remembered
  --offline DIR      use no network but DIR, a folder that scripts/wheelhouse.sh filled; torch
                     must be installed, or a wheel in DIR
  --extras NAMES     also plot (matplotlib, for plots), onnx (to export models), shortlist (word
                     alignments, for export --shortlist), textrank (a baseline), test (all of
                     these and what scripts/test.sh needs), or several with commas between:
                     --extras plot,onnx; remembered
  --device D         which build of torch: cpu, gpu, or auto (default: gpu where nvidia-smi sees one)
  --torch SPEC       another torch than the default: a version or a wheel
  --torch-index URL  take torch from this package index (also: TORCH_INDEX_URL)
  --print-python     print the path of the Python that was set up, and do nothing else
  -h, --help         this text

The package index is pip's own (PIP_INDEX_URL, pip.conf). The log is .install/log.
EOF
}

# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

step_number=0
step() {
    step_number=$((step_number + 1))
    say "[$step_number/$steps] $*"
}

# logged COMMAND...: run a command with its output in the log; print the log's last line regularly.
logged() {
    local started=$SECONDS heart status=0
    printf '\n== %s\n' "$*" >>"$log"
    {
        while sleep $((SECONDS - started < 60 ? 15 : 30)) >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            printf '      %3d s  %s\n' $((SECONDS - started)) "$(grep -v '^WARNING' "$log" | tail -n 1 | cut -c 1-90)"
        done
    } 9>&- &
    heart=$!
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    kill "$heart" 2>/dev/null || true
    wait "$heart" 2>/dev/null || true
    return "$status"
}

# run WHAT COMMAND...: the same, and print the end of the log if it fails.
run() {
    local what=$1
    shift
    logged "$@" && return
    tail -n 20 "$log" | sed 's/^/      /' >&2
    die "$what failed; the lines above end the log $log. Fix it, then rerun to resume."
}

# --- Python -------------------------------------------------------------------------------------

# The default interpreter.
find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11 python3.13 python3.14; do
        if supported "$(python_version "$candidate")"; then say "$candidate" && return; fi
    done
    die "no Python 3.11 or newer found (python3 is $(python_version python3 || true)): install one, or name it with --python PY"
}

# Dies unless the interpreter runs and is of a supported version.
check_python() {
    local version
    command -v "$1" >/dev/null || die "Python $1: there is no such command"
    version=$(python_version "$1")
    [ -n "$version" ] || die "Python $1 does not run; give another interpreter, such as --python python3.11"
    supported "$version" ||
        die "Python $version ($1) is too old: 3.11 or newer is needed; name one with --python PY, such as --python python3.12"
}

# Makes .venv from $1; it shares the base's packages if torch is among them.
make_venv() {
    local base=$1 version torch="" see=()
    version=$(python_version "$base")
    "$base" -c 'import ensurepip, venv' 2>/dev/null ||
        die "Python $version ($base) cannot make virtual environments: install python$version-venv (Debian, Ubuntu), or use another with --python PY, or --active"
    [ -n "$torch_spec" ] || torch=$(package_version "$base" torch)
    if [ -n "$torch" ]; then
        see=(--system-site-packages)
        say "      $base has torch $torch: the new environment shares its packages"
    fi
    run "making $venv" "$base" -m venv --clear ${see[@]+"${see[@]}"} "$venv"
    if [ -n "$torch" ] && [ -z "$(package_version "$venv/bin/python3" torch)" ]; then
        rm -rf "$venv"
        die "torch $torch is in an active virtual environment, which a new one cannot see: run again with --active to install there"
    fi
}

# An interrupted pip leaves incomplete packages that it later takes for complete. They lack one of
# the two files that pip writes last. Without their .dist-info they are installed again.
forget_half_installed() {
    local info
    for info in "$venv"/lib/python3*/site-packages/*.dist-info; do
        if [ -d "$info" ] && { [ ! -s "$info/RECORD" ] || [ ! -e "$info/INSTALLER" ]; }; then
            say "      $(basename "$info" .dist-info) was left half installed: installing it again"
            rm -rf "$info"
        fi
    done
}

# --- torch --------------------------------------------------------------------------------------

# The newest CUDA that the driver runs, such as 12.4; empty if nvidia-smi does not say.
driver_cuda() { nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -n 1 || true; }

# The main version of the CUDA libraries that the torch looked up depends on, such as 13, or nothing.
looked_up_cuda() {
    grep -oE '(nvidia-cuda-runtime(-cu[0-9]+)?|cuda-toolkit(\[[^]]*\])?) *==[0-9]+' "$scratch/torch.json" |
        sed 's/.*==//' | head -n 1 || true
}

gpu_here() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# pip of the environment; offline it uses only the wheelhouse.
pip_install() { "$python" -m pip install --disable-pip-version-check --no-input ${source_args[@]+"${source_args[@]}"} "$@"; }

# Whether torch from this index depends on CUDA libraries. Downloads at most torch itself.
index_gives_cuda() {
    [ "$(uname -s)" = Linux ] || return 1
    run "looking up $1" pip_install --dry-run --ignore-installed --no-deps --quiet --report "$scratch/torch.json" "$1"
    grep -q '"nvidia-' "$scratch/torch.json"
}

# install_torch_with_uv BACKEND SPEC: uv knows PyTorch's indices, one for each CUDA and one for CPUs, and
# with the backend auto takes that of the driver.
install_torch_with_uv() {
    local uv
    uv=$(command -v uv || true)
    if [ -z "$uv" ]; then
        run "fetching uv" pip_install --target "$scratch/uv" uv
        uv="$scratch/uv/bin/uv"
    fi
    logged "$uv" pip install --python "$python" --torch-backend="$1" --no-deps "$2" || return
    run "installing what torch needs" pip_install "$2"
}

# A build of torch for the GPU and its driver. CUDA 13 needs a newer driver than CUDA 12 does.
install_gpu_torch() {
    local spec=$1 has needs=""
    has=$(driver_cuda)
    if [ -n "$has" ] && index_gives_cuda "$spec"; then needs=$(looked_up_cuda); fi
    if [ -n "$needs" ] && [ "$needs" -gt "${has%%.*}" ]; then
        say "      the driver runs CUDA $has at most, and $spec here needs CUDA $needs: uv looks for the newest build that fits"
        if [ -z "$torch_spec" ]; then spec="torch<=${spec#torch==}"; fi
        if install_torch_with_uv auto "$spec"; then return; fi
        say "      none was found (see $log): taking the build that does not fit. Update the driver, or see the warning below"
        spec=$1
    fi
    say "      $spec, the GPU build (about 3 GB)"
    run "installing torch" pip_install "$spec"
}

install_torch() {
    local spec=$torch_spec
    case $spec in
        "") spec=$(default_torch) ;;
        [0-9]*) spec="torch==$spec" ;;
    esac
    if [ -n "$offline" ]; then
        compgen -G "$offline/torch-*.whl" >/dev/null ||
            die "--offline: $python has no torch, and $offline holds no wheel of it: install torch first (then --python or --active with the Python that has it), or collect it too: pip download --dest $offline $(default_torch)"
        [ -n "$torch_spec" ] || spec=torch
        run "installing torch" pip_install "$spec"
    elif [ -n "$torch_index" ]; then
        say "      $spec from $torch_index"
        run "installing torch" pip_install --index-url "$torch_index" "$spec"
    elif [ "$device" = gpu ]; then
        install_gpu_torch "$spec"
    elif index_gives_cuda "$spec"; then
        say "      $spec, the CPU build: the package index has the CUDA build only, so uv fetches it from PyTorch's own"
        install_torch_with_uv cpu "$spec" ||
            die "no CPU build of $spec was found: the package index has only the CUDA build (about 3 GB), and PyTorch's own index was not reached (see $log). Name an index with CPU builds (--torch-index URL; pytorch.org, Get Started, shows it) or a wheel (--torch FILE), or take the CUDA build (--device gpu)."
    else
        say "      $spec, the build without CUDA packages"
        run "installing torch" pip_install "$spec"
    fi
}

# --- the command line -----------------------------------------------------------------------------

given_python="" active=no offline="" extras="" device=auto torch_spec="" torch_index=${TORCH_INDEX_URL:-} print_python=no
while [ $# -gt 0 ]; do
    case $1 in
        --python | --offline | --extras | --device | --torch | --torch-index)
            [ $# -ge 2 ] || die "$1 needs a value (see -h)"
            ;;
    esac
    case $1 in
        --python) given_python=$2 && shift ;;
        --active) active=yes ;;
        --offline) offline=$2 && shift ;;
        --extras) extras=$2 && shift ;;
        --device) device=$2 && shift ;;
        --torch) torch_spec=$2 && shift ;;
        --torch-index) torch_index=$2 && shift ;;
        --print-python) print_python=yes ;;
        -h | --help) usage && exit ;;
        *) die "unknown option $1 (see -h)" ;;
    esac
    shift
done
case $device in auto | cpu | gpu) ;; *) die "--device $device: choose auto, cpu or gpu" ;; esac
extras=$(merge_extras "$extras")
if [ -n "$offline" ]; then
    [ -d "$offline" ] || die "--offline $offline: there is no such folder; scripts/wheelhouse.sh makes one"
    compgen -G "$offline/*.whl" >/dev/null || die "--offline $offline: it holds no wheels; scripts/wheelhouse.sh collects them"
    offline=$(cd "$offline" && pwd -P)
fi
if [ "$device" = auto ]; then
    if gpu_here; then device=gpu; else device=cpu; fi
fi

# What was set up: .install/environment holds the Python, a fingerprint, the extras and the checkout,
# line by line. In a copy of a checkout it names the original's .venv, which is not this one's to change.
remembered() {
    local python checkout
    [ -f "$state/environment" ] || return 0
    python=$(sed -n 1p "$state/environment") checkout=$(sed -n 4p "$state/environment")
    case $python in
        "$venv"/*) ;;
        */.venv/bin/python3) if [ "$1" = 1 ] && [ "${checkout:-$root}" != "$root" ]; then return; fi ;;
    esac
    sed -n "$1p" "$state/environment"
}
fingerprint() { cat "$root/setup.py" "$root/pyproject.toml" "$root/fairseq_plugins/version.py" "$root/scripts/install.sh" "$root/scripts/common.sh" | cksum; }

if [ "$print_python" = yes ]; then
    [ -x "$(remembered 1)" ] || die "nothing is set up yet: run bash scripts/install.sh"
    remembered 1
    exit
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

# --- the environment ------------------------------------------------------------------------------

# Without options, reuse the environment of the last run.
python=""
if [ "$active" = yes ]; then
    base=${given_python:-python3}
    check_python "$base"
    python=$("$base" -c 'import sys; print(sys.executable)')
    if [ "$(dirname "$python")" = "$venv/bin" ]; then python="$venv/bin/python3"; fi
elif [ -z "$given_python" ] && [ -x "$(remembered 1)" ]; then
    python=$(remembered 1)
elif [ -x "$venv/bin/python3" ]; then
    python="$venv/bin/python3"
fi

# A .venv without its Python, or copied from elsewhere, does not work.
own() { [ "$python" = "$venv/bin/python3" ]; }
if { [ -z "$python" ] || own; } && [ -d "$venv" ]; then
    if ! grep -qsF "$venv" "$venv/bin/activate" || [ -z "$(python_version "$venv/bin/python3")" ]; then
        say "The .venv here is unfinished, was moved or lost its Python: creating it again."
        python=""
    elif [ -n "$given_python" ] && [ "$(python_version "$given_python")" != "$(python_version "$venv/bin/python3")" ]; then
        die "--python $given_python: .venv has Python $(python_version "$venv/bin/python3"); remove it first (rm -r $venv)"
    fi
fi

keep_torch() { say "      --torch and --torch-index: an installed torch is never replaced. To change it, uninstall it first: $python -m pip uninstall torch"; }
self_check() { "$python" "$root/scripts/selfcheck.py"; }

extras=$(merge_extras "$(remembered 3)" "$extras") # keep the extras of earlier runs

if [ -n "$python" ] && [ "$(remembered 1)" = "$python" ] && [ "$(remembered 2)" = "$(fingerprint)" ] &&
    [ "$(remembered 3)" = "$extras" ]; then
    say "Everything is there."
    if [ -n "$torch_spec$torch_index" ]; then keep_torch; fi
    self_check && exit
    say "The self-check failed: setting up again."
fi
rm -f "$state/environment"
: >"$log"

step "Python"
if own && ! "$python" -m pip --version >/dev/null 2>&1; then python=""; fi
if [ -z "$python" ]; then
    base=${given_python:-$(find_python)}
    make_venv "$base"
    python="$venv/bin/python3"
fi
version=$(python_version "$python")
supported "$version" || die "Python $version ($python) is too old: 3.11 or newer is needed"
say "      $version, $python"
if own; then forget_half_installed; fi

export PIP_PROGRESS_BAR=off # it would only fill the log
source_args=()
if [ -n "$offline" ]; then
    unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS
    export PIP_CONFIG_FILE=/dev/null
    source_args=(--no-index --find-links "$offline")
    say "      packages: only those in $offline"
fi

"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip: install it ($python -m ensurepip), then rerun"

step "torch"
torch=$(package_version "$python" torch)
if [ -n "$torch" ]; then
    if [ -n "$torch_spec$torch_index" ]; then keep_torch; fi
else
    install_torch
    torch=$(package_version "$python" torch)
fi
case $torch in [01].* | 2.[0-9].*) die "torch $torch in $python is too old: 2.10 or newer is needed" ;; esac
say "      $torch"
say "torch==$torch" >"$scratch/constraints.txt"
export PIP_CONSTRAINT="${PIP_CONSTRAINT:+$PIP_CONSTRAINT }$scratch/constraints.txt"
export PIP_BUILD_CONSTRAINT="$scratch/constraints.txt" # newer pips read only this one for builds

step "Build tools"
run "installing the build tools" pip_install numpy "setuptools>=64" wheel "cython"

step "fairseq, the plugin and what they need"
fairseq="fairseq-fixed"
if compiles_fairseq "$version" && [ -z "$offline" ] && [ -z "$(package_version "$python" "$fairseq")" ]; then
    command -v "${CXX:-g++}" >/dev/null ||
        die "no C++ compiler, which $fairseq needs on Python $version: install g++ (Debian, Ubuntu: sudo apt install g++), or use Python 3.12 (on x86_64)"
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' ||
        die "no Python.h, which $fairseq needs on Python $version: install python$version-dev (Debian, Ubuntu), or use Python 3.12 (on x86_64)"
    say "      $fairseq has no ready build for Python $version: compiling it takes a few minutes"
    run "compiling $fairseq" build_fairseq "$python" install --disable-pip-version-check --no-input "$(fairseq_requirement)"
fi
run "installing the plugin" pip_install --no-build-isolation --editable "$root${extras:+[$extras]}"

step "Self-check"
self_check || die "the set-up is done but its self-check failed; the line above says why (log: $log)"
printf '%s\n' "$python" "$(fingerprint)" "$extras" "$root" >"$state/environment"
if own; then say "Done. To use it in a shell: source \"$venv/bin/activate\""; else say "Done."; fi
