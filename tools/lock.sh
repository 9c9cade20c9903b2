#!/bin/sh
# Writes requirements.lock, what the container image installs: every package that pyproject.toml leads to, pinned, with the hashes of its files.
# Run it when a dependency in pyproject.toml changes, or for newer versions. It needs Python 3.11 or newer and a package index.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
{
    echo "# What the image installs (Dockerfile): pip install --require-hashes -r requirements.lock"
    echo "# Made by: sh tools/lock.sh. Don't edit; a test compares it with pyproject.toml."
    # Neither the index nor the machine is named: the hashes say what is meant.
    "$work/venv/bin/uv" pip compile --quiet pyproject.toml --universal --python-version 3.11 \
        --extra elasticsearch --extra opentelemetry --extra prometheus --extra sentry --extra tasks --extra web --extra worker \
        --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links
} >"$work/requirements.lock"
mv "$work/requirements.lock" requirements.lock
