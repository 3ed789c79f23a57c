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

# Whether a version of Python is 3.11 or newer.
supported() {
    case $1 in
        3.[0-9] | 3.10 | [0-2].*) return 1 ;;
        3.*) return 0 ;;
        *) return 1 ;;
    esac
}

# Dies unless the interpreter runs and is supported.
check_python() {
    local version
    command -v "$1" >/dev/null || die "Python $1: there is no such command"
    version=$(python_version "$1")
    [ -n "$version" ] || die "Python $1 does not run; give another interpreter, such as --python python3.12"
    supported "$version" || die "Python $version ($1) is too old: 3.11 or newer is needed; name one with --python PY, such as --python python3.12"
}

# The requirement of fairseq in setup.py, and the torch that was tested most with it.
fairseq_requirement() { sed -n 's/.*"\(fairseq-fixed==[^"]*\)".*/\1/p' "$root/setup.py"; }
default_torch() { say torch==2.13.0; }

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

# intact PYTHON WHEEL: whether every file in the wheel has its checksum. (python -m zipfile -t exits
# with 0 even if one has not.)
intact() {
    "$1" -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip() is not None)' \
        "$2" >/dev/null 2>&1
}
