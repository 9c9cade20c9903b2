"""`python -m tests.kit.bytecode`: what pytest makes of the tests' asserts is written down once, by all cores, and not by every process of a run.

It knows pytest from within: where that is another one than this was written for, nothing is written, and pytest does it by itself as ever.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def compile_share(share: int, of: int) -> None:
    """Compile every n-th module that pytest would rewrite, unless it has been since it was changed."""
    from _pytest.assertion import rewrite
    from _pytest.config import _prepareconfig

    os.chdir(TESTS.parent)
    config = _prepareconfig(["-q", "-p", "no:cacheprovider"])
    hook = config.pluginmanager.rewrite_hook
    state = config.stash[rewrite.assertstate_key]
    for path in sorted(TESTS.rglob("*.py"))[share::of]:
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts).removesuffix(".__init__")
        if not hook._should_rewrite(name, str(path), state):
            continue
        cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, cached, state.trace) is None:
            stat, code = rewrite._rewrite_test(path, config)
            cached.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(state, code, stat, cached)


def main() -> None:
    cores = os.cpu_count() or 1
    children = []
    for share in range(cores):
        if pid := os.fork():
            children.append(pid)
        else:
            try:
                compile_share(share, cores)
            except Exception as error:
                print(f"pytest writes its bytecode itself: {error!r}", file=sys.stderr)
            os._exit(0)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
