# Shared by .ci/run and .ci/nightly: bash, sourced in the checkout.
exec </dev/null
export PYTHONUNBUFFERED=1

# Installs Debian packages when this is root on Debian; false otherwise or when that fails.
debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "apt-get install $*"
    # Run level 1: a server package must not start its service here, the tests start their own.
    local -x DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    local log
    log=$(mktemp)
    { apt-get install -y -q "$@" || { apt-get update -q && apt-get install -y -q "$@"; }; } >"$log" 2>&1 && return
    tail -n 5 "$log"
    return 1
}

# limited SECONDS COMMAND...: a command that hangs must not take the time of the whole run.
limited() { if command -v timeout >/dev/null; then timeout --kill-after=10 "$@"; else shift && "$@"; fi; }

# The virtual environment with one extra of pyproject.toml.
environment() { sh tools/venv.sh "$1" || { debian python3-venv && sh tools/venv.sh "$1"; }; }

# The path of Debian's redis-server, installed if need be; false where there is none.
packaged_redis() { command -v redis-server || { debian redis-server >&2 && command -v redis-server; }; }

# The program that starts an Elasticsearch for tests: `PROGRAM PORT [-Dset.NAME=VALUE ...]` prints READY once it answers, and ends with TERM.
# FUSION_TEST_ES_START names it; else one of a folder beside the checkout is taken.
elasticsearch_starter() {
    local program
    for program in "${FUSION_TEST_ES_START:-}" ../*/tools/es*/start; do
        ! [ -x "$program" ] || { echo "$program"; return; }
    done
    return 1
}

# A Chromium for the tests. Only a machine without apt-get may lack one.
browser() {
    environment browser
    if ! .venv/bin/python -m tests.browser.chromium && command -v apt-get >/dev/null; then
        debian --no-install-recommends chromium fonts-dejavu-core || { echo "no Chromium here, and apt-get can't install it"; return 1; }
    fi
    if command -v apt-get >/dev/null; then export FUSION_TEST_BROWSER=required; fi
}
