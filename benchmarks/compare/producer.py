"""`python -m benchmarks.compare.producer NAME`: enqueues what its standard input asks for, and answers each line: null, or the error's text.

Its first line tells the version of the library, the commands of the service and their environment.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version


def main() -> None:
    contender = import_module(f"benchmarks.compare.contenders.on_{sys.argv[1]}")
    os.environ.update(contender.ENV)
    try:
        own = version(contender.PACKAGE)
    except PackageNotFoundError:  # Fusion, from this checkout
        from fusion import __version__ as own
    print(json.dumps([own, contender.commands(), contender.ENV]), flush=True)
    for line in sys.stdin:
        try:
            contender.enqueue(*json.loads(line))
            answer = None
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
