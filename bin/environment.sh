# Sourced by bin/demo and bin/test: finds Python, makes the virtual environment, installs what is pinned.
# Needs: $root. Sets: $python of the environment.

fail() {
    echo "gpufleet: $*" >&2
    exit 1
}

say() {
    echo "gpufleet: $*"
}

# A Python that can run us: $PYTHON, or the first of the usual names.
find_python() {
    found=""
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        case $version in
            3.11 | 3.12 | 3.13)
                echo "$candidate"
                return 0
                ;;
        esac
        found="$found $candidate is $version,"
    done
    found=${found# }
    fail "Python 3.11, 3.12 or 3.13 is needed (${found:-no Python was found,} see PYTHON=/path/to/python3)."
}

# install FOLDER REQUIREMENTS: a virtual environment that holds exactly what is pinned; nothing to do when it does already.
install() {
    folder=$1
    requirements=$2
    stamp="$folder/installed"
    if [ -e "$folder" ] && [ ! -d "$folder" ]; then
        fail "$folder is not a folder: remove it."
    fi
    python="$folder/bin/python"
    base=$(find_python) || exit 1
    wanted="$("$base" -c 'import sys; print(sys.version.split()[0])') $(cksum < "$requirements")"
    if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    started=$(date +%s)
    say "installing $(grep -c '==' "$requirements") packages into $folder (about half a minute the first time)"
    make_environment "$base" "$folder"
    install_packages "$folder" "$requirements"
    echo "$wanted" > "$stamp" || fail "Cannot write $stamp."
    say "installed in $(($(date +%s) - started)) s"
}

# make_environment PYTHON FOLDER: a virtual environment of that very Python; one of another is made anew.
make_environment() {
    about='import pip, sys; print(sys.version)'
    if [ -x "$2/bin/python" ] && [ "$("$2/bin/python" -c "$about" 2>/dev/null)" = "$("$1" -c 'import sys; print(sys.version)')" ]; then
        return 0
    fi
    if ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            say "installing python3-venv, which this system left out"
            apt-get install -y -q python3-venv >/dev/null || fail "apt-get cannot install python3-venv."
        else
            fail "This Python has no venv module: install it first (on Debian: apt install python3-venv)."
        fi
    fi
    report=$("$1" -m venv --clear "$2" 2>&1) || fail_install "$report"
}

# uv downloads in parallel and took 2 s where pip took 21; pip is the fall-back. Every file is held to its hash.
install_packages() {
    uv=$(command -v uv || echo "$1/bin/uv")
    if [ ! -x "$uv" ]; then
        watch "fetching the installer" "$1/bin/python" -m pip install --quiet --disable-pip-version-check uv || true
    fi
    if [ ! -x "$uv" ] || ! watch "installing packages" \
        "$uv" pip install --quiet --python "$1/bin/python" --require-hashes -r "$2"; then
        watch "installing packages with pip" "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes -r "$2" || fail_install "$watched"
    fi
    # Once here instead of in every process at the first start. Plotly's 1,500 Python files are never imported.
    watch "compiling" "$1/bin/python" -m compileall -q -j 0 -x '/(plotly|_plotly_utils|narwhals|tests?|locale)/' \
        "$1"/lib/python3.*/site-packages || true
}

# watch WHAT COMMAND...: runs it, says every five seconds that it still runs; what it said is in $watched.
watch() {
    what=$1
    shift
    log=$(mktemp) || fail "The disk that holds temporary files is full or cannot be written: make room."
    "$@" >"$log" 2>&1 </dev/null &
    watched_pid=$!
    trap 'kill "$watched_pid" 2>/dev/null; rm -f "$log"; exit 130' INT TERM HUP
    waited=0
    while kill -0 "$watched_pid" 2>/dev/null; do
        sleep 0.5
        waited=$((waited + 1))
        [ $((waited % 10)) -ne 0 ] || say "... $what, $((waited / 2)) s"
    done
    code=0
    wait "$watched_pid" || code=$?
    trap - INT TERM HUP
    watched=$(cat "$log")
    rm -f "$log"
    return "$code"
}

fail_install() {
    case $1 in
        *"No space left on device"* | *"quota exceeded"*)
            fail "The disk that holds $root is full: make room and start again."
            ;;
    esac
    fail "Installation failed: $(printf '%s\n' "$1" | grep -v '^ *$' | tail -n 1)"
}
