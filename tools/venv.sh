#!/bin/sh
# Makes .venv fit to run `$1` (an extra of pyproject.toml: demo, dev, browser, bench, docs or release) and is silent and quick when it already is.
# PYTHON=/path/to/python chooses the interpreter; otherwise the first on PATH that is new enough.
set -eu
cd "$(dirname "$0")/.."
extra=$1
minimum="3, 11"
pip_log=.venv/pip.log

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf '\nfusion: %s\n' "$*" >&2; exit 1; }

# Run, not looked up: a version manager's shim may be on PATH and lead nowhere.
new_enough() { "$1" -c "import sys; sys.exit(sys.version_info < ($minimum))" >/dev/null 2>&1; }
version_of() { if command -v "$1" >/dev/null 2>&1; then "$1" --version 2>&1 || true; else echo "no such program"; fi; }
identity() { "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null; }

# A venv holds absolute paths: one that was copied or moved along with the checkout belongs to the old place.
fingerprint="$(pwd -P) $(cksum <pyproject.toml)"
stamped() { [ -f ".venv/.stamp-$1" ] && [ "$(cat ".venv/.stamp-$1")" = "$fingerprint" ]; }
usable() {
    new_enough .venv/bin/python || return 1
    [ -z "${PYTHON:-}" ] || [ "$(identity "$PYTHON")" = "$(identity .venv/bin/python)" ]
}

# bench and browser hold dev, which holds demo.
fit() {
    case $1 in demo) set -- demo dev browser bench ;; dev) set -- dev browser bench ;; esac
    for one in "$@"; do ! stamped "$one" || return 0; done
    return 1
}
if fit "$extra" && usable; then exit 0; fi

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer ($(version_of "$PYTHON"))"
        echo "$PYTHON"
        return
    fi
    without_venv=
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        new_enough "$candidate" || continue
        if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then echo "$candidate"; return; fi
        without_venv=${without_venv:-$candidate}
    done
    [ -n "$without_venv" ] || fail "needs Python 3.11 or newer, and there is none on PATH (python3: $(version_of python3)).
Install one, or name it: make PYTHON=/path/to/python3.12 ..."
    echo "$without_venv"
}

create() {
    python=$(find_python)
    say "creating .venv with $("$python" --version 2>&1)"
    rm -rf .venv
    if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        "$python" -m venv .venv || fail "'$python -m venv .venv' failed; its message is above"
    elif "$python" -m venv --without-pip .venv >/dev/null 2>&1 &&
        "$python" -m pip --python .venv/bin/python --disable-pip-version-check install --quiet pip >/dev/null 2>&1; then
        return # with the interpreter's own pip (22.3 or newer)
    else
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        fail "$python has no venv or ensurepip module (Debian and Ubuntu package it apart). Install it, then run make again:

    sudo apt-get install -y python$version-venv"
    fi
}

if ! usable || [ "$(cat .venv/.home 2>/dev/null)" != "$(pwd -P)" ]; then
    create
    pwd -P >.venv/.home
fi

started=$(date +%s)
say "installing fusion[$extra] into .venv (once; 10 to 60 seconds)"
if ! .venv/bin/python -m pip install --disable-pip-version-check --no-input --quiet --editable ".[$extra]" >"$pip_log" 2>&1; then
    tail -n 20 "$pip_log" >&2
    fail "pip could not install the dependencies; its last lines are above, all of them in $pip_log.
Is the package index reachable? Behind a proxy or a mirror set HTTPS_PROXY or PIP_INDEX_URL."
fi
printf '%s\n' "$fingerprint" >".venv/.stamp-$extra"
say "ready after $(($(date +%s) - started)) s"
