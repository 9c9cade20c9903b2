#!/bin/sh
# Starts a Redis in which only `fusion` can log in, with the password of a file, and has only the rights it needs (users.acl).
# Arguments go to redis-server.
set -eu
umask 077
file=${FUSION_REDIS_PASSWORD_FILE:-/run/secrets/redis_password}
password=$(cat "$file")
if [ -z "$password" ]; then
    echo "$file is empty; make a password with: openssl rand -hex 32 > $file" >&2
    exit 1
fi
users=$(mktemp -d)/users.acl
# Its SHA-256: no command line and no file shows the password.
digest=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
sed "s/PASSWORD_SHA256/$digest/" "$(dirname "$0")/users.acl" >"$users"
exec redis-server --aclfile "$users" "$@"
