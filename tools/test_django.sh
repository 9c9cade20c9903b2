#!/bin/sh
# `make test-django`: tests/contrib, Flask and FastAPI left out, with each Django that is supported, in environments of their own below .venv;
# and Django's own tests of tasks.
# VERSIONS="5.2 6.0 6.1" chooses. 6.0 is forced on Python 3.11, where it works; 6.1 needs 3.12, which PYTHON312=/path/to/python names.
set -eu
cd "$(dirname "$0")/.."
tools="pytest>=8.4 pytest-timeout>=2.4 pytest-xdist>=3.8 hypothesis>=6.112 trustme>=1.2 rq>=2.12,<3 sqlalchemy[asyncio]>=2.0.40 psycopg>=3.2 tzdata>=2025.2"

say() { printf '==> %s\n' "$*" >&2; }
is_312() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

install() {
    version=$1 home=$2 python=.venv/bin/python
    case $version in 5.2 | 6.0) ;; *)
        is_312 "$python" || python=${PYTHON312:-python3.12}
        is_312 "$python" || { say "Django $version needs Python 3.12: make test-django PYTHON312=/path/to/python3.12"; return 1; } ;;
    esac
    say "Django $version with $("$python" --version)"
    "$python" -m venv "$home"
    case $version in 5.2) set -- $tools "django-tasks>=0.12" ;; *) set -- $tools ;; esac
    "$home/bin/pip" --disable-pip-version-check install --quiet --ignore-requires-python -e '.[django,embedded,tasks,web,worker]' "django==$version.*" "$@"
    case $version in 5.2) ;; *)
        exact=$("$home/bin/python" -c 'import django; print(django.__version__)')
        "$home/bin/pip" --disable-pip-version-check download --quiet --no-deps --no-binary :all: --ignore-requires-python --dest "$home/sdist" "django==$exact"
        tar -xzf "$home/sdist/"*.tar.gz -C "$home/sdist"
        mv "$home/sdist/"*/tests "$home/tests" ;;
    esac
    touch "$home/.ready"
}

failed=
for version in ${VERSIONS:-5.2 6.0 6.1}; do
    home=.venv/django-$version
    [ -f "$home/.ready" ] || { rm -rf "$home"; install "$version" "$home"; } || { failed="$failed $version"; continue; }
    say "Django $("$home/bin/python" -c 'import django, sys; print(django.__version__, "on Python", sys.version.split()[0])')"
    own=
    [ ! -d "$home/tests" ] || own=$home/tests
    FUSION_DJANGO_TESTS=$own "$home/bin/python" -m pytest -q -n "${N:-2}" ${ARGS:-} --ignore=tests/contrib/web tests/contrib || failed="$failed $version"
done
[ -z "$failed" ] || { say "failed with Django:$failed"; exit 1; }
