# Functions for the other scripts, which source this file with the checkout in $root.
# shellcheck shell=bash
: "${root:?}"

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

say() { printf '%s\n' "$*"; }

# The version of an interpreter, "3.11"; nothing if it does not run.
python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

supported() {
    case $1 in
        3.8 | 3.9 | 3.10 | 3.11 | 3.12) return 0 ;;
        *) return 1 ;;
    esac
}

# The version of an installed package, nothing if there is none: package_version PY NAME
package_version() {
    "$1" - "$2" <<'EOF'
import importlib.metadata as metadata
import sys

try:
    print(metadata.version(sys.argv[1]))
except metadata.PackageNotFoundError:
    pass
EOF
}

# For a version of Python, as in setup.py: the package of fairseq, its requirement with the version,
# and whether it must be compiled.
fairseq_package() {
    case $1 in
        3.8 | 3.9 | 3.10) say fairseq ;;
        *) say fairseq-fixed ;;
    esac
}

fairseq_requirement() { sed -n "s/.*'\($(fairseq_package "$1")==[^;]*\);.*/\1/p" "$root/setup.py"; }

compiles_fairseq() {
    [ "$(uname -m)" = x86_64 ] || return 0
    case $1 in
        3.9 | 3.10 | 3.11) return 0 ;;
        *) return 1 ;; # there are wheels for x86_64
    esac
}

# Build fairseq with pip. fairseq-fixed needs numpy and torch, so build isolation is off: pip would
# fetch another torch. fairseq 0.12.2 needs build isolation: if it finds torch, it compiles extensions
# whose sources it lacks. CUDA_HOME is unset because the GPU extensions, which nothing here uses,
# would need the same compiler as torch.
build_fairseq() {
    local python=$1 how=()
    shift
    if [ "$(fairseq_package "$(python_version "$python")")" = fairseq-fixed ]; then how=(--no-build-isolation); fi
    env -u CUDA_HOME "$python" -m pip "$@" ${how[@]+"${how[@]}"}
}

# Whether the fairseq of Python $1 translates with torch $2: fairseq 0.12.2 does up to 1.12.
translates() {
    [ "$(fairseq_package "$1")" = fairseq-fixed ] || case $2 in 1.[0-9].* | 1.1[0-2].*) ;; *) return 1 ;; esac
}

# The default torch for a Python: the newest that was tested with its fairseq.
default_torch() {
    case $1 in
        3.8 | 3.9 | 3.10) say torch==1.12.1 ;;
        *) say torch==2.13.0 ;;
    esac
}

# The extras in setup.py, separated by commas.
known_extras() { sed -n '/extras_require/,/^    }/s/^ *"\([a-z0-9-]*\)": .*/\1/p' "$root/setup.py" | paste -sd ,; }

# merge_extras NAMES...: merge lists of extras without duplicates; dies at an unknown one.
merge_extras() {
    local name names=()
    for name in $(printf '%s\n' "$@" | tr , ' '); do
        case ,$(known_extras), in
            *,"$name",*) names+=("$name") ;;
            *) die "--extras $name: choose from $(known_extras)" ;;
        esac
    done
    if [ ${#names[@]} -gt 0 ]; then printf '%s\n' "${names[@]}" | sort -u | paste -sd ,; fi
}

# Constraints for pip: keep the installed torch, and versions that fit it.
write_constraints() {
    local torch=$1 major minor patch
    IFS=.+ read -r major minor patch _ <<<"$torch"
    say "torch==$torch"
    case $major.$minor.$patch in
        *[!0-9.]*) ;; # a vendor's build of torch, without a matching torchaudio
        1.*) say "torchaudio==0.$minor.*" ;;
        2.[0-8].*) say "torchaudio==2.$minor.*" ;; # later ones fit any torch
    esac
    if [ "$major" -eq 1 ] || [ "$minor" -lt 3 ]; then say "numpy<2"; fi
}

# intact PYTHON WHEEL: whether every file in the wheel has its checksum. (python -m zipfile -t exits
# with 0 even if one has not.)
intact() {
    "$1" -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip() is not None)' \
        "$2" >/dev/null 2>&1
}
