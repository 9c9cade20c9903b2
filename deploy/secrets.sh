#!/bin/sh
# Makes what is missing of secrets/, which docker-compose.yml reads: the password of Redis, and a token for the dashboard and the HTTP API,
# of which it keeps the hash alone and which it shows, this once.
set -eu
cd "$(dirname "$0")/.."

random() { od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n'; }
digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1; }
# The directory keeps other accounts out; a file itself must be readable in the containers, whose users are others.
# A directory in place of a file is what Docker made of one that it missed.
store() {
    [ ! -d "secrets/$1" ] || rmdir "secrets/$1"
    (umask 022 && cat >"secrets/$1.new") && mv "secrets/$1.new" "secrets/$1"
}

[ -d secrets ] || mkdir -m 700 secrets
if [ ! -f secrets/redis_password ] || [ ! -s secrets/redis_password ]; then
    random | store redis_password
    echo "made secrets/redis_password"
fi
if [ -f secrets/server_tokens ] && [ -s secrets/server_tokens ]; then
    echo "secrets/server_tokens is there. This prints another token, and the line for that file:"
    echo "    docker compose run --rm --no-deps server server token NAME --scope admin"
else
    token=fusion_$(random)
    printf 'operator:admin:%s\n' "$(printf %s "$token" | digest)" | store server_tokens
    echo "made secrets/server_tokens. The token \`operator\`, which may do everything, shown this once:"
    echo "$token"
fi
