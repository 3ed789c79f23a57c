# Functions of install.sh: the virtual environment, and which build of torch goes into it.
# shellcheck shell=bash
# shellcheck disable=SC2154 # install.sh sets the variables

# logged COMMAND...: run a command with its output in the log; print the log's last line regularly.
logged() {
    local started=$SECONDS heart status=0
    printf '\n== %s\n' "$*" >>"$log"
    {
        while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            printf '      %3d s  %s\n' $((SECONDS - started)) "$(grep -v '^WARNING' "$log" | tail -n 1 | cut -c 1-90)"
        done
    } 9>&- &
    heart=$!
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    # SIGKILL, since with SIGTERM a subshell that has just begun runs the EXIT trap of the script
    kill -KILL "$heart" 2>/dev/null || true
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

# pip of the environment; offline it uses only the wheelhouse.
pip_install() {
    if [ -n "$offline" ]; then set -- --no-index --find-links "$offline" "$@"; fi
    "$python" -m pip install "$@"
}

# The version of an installed package, nothing if there is none: package_version PY NAME
package_version() {
    "$1" -c 'import sys, importlib.metadata as m; print(next((d.version for d in m.distributions(name=sys.argv[1])), ""))' "$2"
}

# The default interpreter.
find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11 python3.13 python3.14; do
        if supported "$(python_version "$candidate")"; then say "$candidate" && return; fi
    done
    candidate=$(python_version python3)
    die "no Python 3.11 or newer found (python3 is ${candidate:-missing}): install one, or name it with --python PY"
}

# Makes .venv anew; it shares the packages of the Python it is made from if torch is among them.
make_venv() {
    local base version torch="" see=()
    base=${given_python:-$(find_python)}
    version=$(python_version "$base")
    "$base" -c 'import ensurepip, venv' 2>/dev/null ||
        die "Python $version ($base) cannot make virtual environments: install python$version-venv (Debian, Ubuntu), or use another with --python PY, or --active"
    if [ -d "$venv" ]; then say "      the .venv here is unfinished, was moved or lost its Python: creating it again"; fi
    [ -n "$torch_spec" ] || torch=$(package_version "$base" torch)
    if [ -n "$torch" ]; then
        see=(--system-site-packages)
        say "      $base has torch $torch: the new environment shares its packages"
    fi
    run "making $venv" "$base" -m venv --clear ${see[@]+"${see[@]}"} "$venv"
    if [ -n "$torch" ] && [ -z "$(package_version "$python" torch)" ]; then
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

# Whether the build of torch in pip's index fits: for a CPU one without CUDA, which takes 3 GB, and for
# a GPU one with a CUDA that its driver runs. Downloads at most torch itself.
index_has_the_build() {
    local report="$scratch/torch.json" needs has
    run "looking up $1" pip_install --dry-run --ignore-installed --no-deps --quiet --report "$report" "$1"
    grep -q '"nvidia-' "$report" || return 0
    [ "$device" = gpu ] || return 1
    needs=$(grep -oE '(nvidia-cuda-runtime(-cu[0-9]+)?|cuda-toolkit(\[[^]]*\])?) *==[0-9]+' "$report" | sed 's/.*==//' | head -n 1)
    has=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
    [ -z "$needs" ] || [ -z "$has" ] || [ "$needs" -le "$has" ] && return
    say "      the driver runs CUDA $has at most, and $1 here needs CUDA $needs"
    return 1
}

# uv knows PyTorch's indices, one for each CUDA and one for CPUs, and with "auto" takes the driver's.
install_torch_with_uv() {
    local uv backend=auto
    if [ "$device" = cpu ]; then backend=cpu; fi
    say "      uv looks for a build of $1 that fits"
    uv=$(command -v uv || true)
    if [ -z "$uv" ]; then
        run "fetching uv" pip_install --target "$scratch/uv" uv
        uv="$scratch/uv/bin/uv"
    fi
    logged "$uv" pip install --python "$python" --torch-backend="$backend" --no-deps "$1" || return
    run "installing what torch needs" pip_install "$1"
}

install_torch() {
    local spec=${torch_spec:-$(default_torch)} newest
    case $spec in [0-9]*) spec="torch==$spec" ;; esac
    newest=$spec
    if [ -z "$torch_spec" ]; then newest="torch>=2.10,<=${spec#torch==}"; fi # an older CUDA has no newer
    if [ -n "$offline" ]; then
        compgen -G "$offline/torch-*.whl" >/dev/null ||
            die "--offline: $python has no torch, and $offline holds no wheel of it: install torch first (then --python or --active with the Python that has it), or collect it too: pip download --dest $offline $(default_torch)"
        run "installing torch" pip_install "${torch_spec:-torch}"
    elif [ -n "$torch_index" ]; then
        say "      $spec from $torch_index"
        run "installing torch" pip_install --index-url "$torch_index" "$spec"
    elif index_has_the_build "$spec"; then
        say "      $spec, the build for a $device"
        run "installing torch" pip_install "$spec"
    elif ! install_torch_with_uv "$newest"; then
        [ "$device" = gpu ] || die "no CPU build of $spec was found: the package index has only the CUDA build, and PyTorch's own index was not reached (see $log). To take the CUDA build, which runs on CPUs too (2 GB to download, 5 GB on disk): bash scripts/install.sh --device gpu. Or give a wheel (--torch FILE) or an index with CPU builds (--torch-index URL; pytorch.org, Get Started, shows it). Then rerun."
        say "      none was found (see $log): taking the build that does not fit. Update the driver, or see the warning below"
        run "installing torch" pip_install "$spec"
    fi
}

# Installs what runs exported models, which takes seconds. The set-up stays unfinished.
install_without_torch() {
    run "installing what runs exported models" pip_install --requirement "$root/examples/deploy/requirements.txt"
    printf '%s\n' "$python" unfinished "$extras" "$root" >"$state/environment"
    say "      without torch and fairseq: bundled and exported models run in this checkout"
}
