"""The browser of these tests: FUSION_TEST_CHROMIUM, else one that Playwright installed, else the `chromium` on PATH.

`python -m tests.browser.chromium` names it, or says in one line why there is none (exit 1).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

#: Read when the tests are loaded: no test sees the FUSION_ variables of the shell.
NAMED = os.environ.get("FUSION_TEST_CHROMIUM", "")
#: A run that must not pass without a browser says `required` here.
REQUIRED = os.environ.get("FUSION_TEST_BROWSER", "") == "required"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
#: Nothing but this machine is reached; a container's /dev/shm is too small; only root needs to go without the sandbox.
ARGUMENTS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
]


class NoBrowser(Exception):
    """Says in one line what to do."""


@contextmanager
def found() -> Iterator[tuple[Playwright, str]]:
    """What drives a browser, and the path of the program. NoBrowser without either."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise NoBrowser("no Playwright here: `make test-browser` installs it") from None
    with sync_playwright() as playwright:
        yield playwright, _program(playwright.chromium.executable_path)


def _program(own: str) -> str:
    if NAMED:
        if not shutil.which(NAMED):
            raise NoBrowser(f"FUSION_TEST_CHROMIUM={NAMED} is no program")
        return NAMED
    if own and Path(own).is_file():
        return own
    for name in _NAMES:
        if there := shutil.which(name):
            return there
    raise NoBrowser("no Chromium here: apt-get install chromium, or name one by FUSION_TEST_CHROMIUM")


if __name__ == "__main__":
    try:
        with found() as (_, path):
            print(path)
    except NoBrowser as error:
        sys.exit(str(error))
