"""The blocks of README.md, for what runs them: tests, and the check of a release."""

from __future__ import annotations

import re
from pathlib import Path


def blocks(text: str, *kinds: str) -> list[str]:
    """Return the fenced blocks of these kinds; "" for those without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for kind, code in found if kind in kinds]


def first_job(text: str, folder: Path) -> str:
    """Write the modules of "First job" into a folder. Return the shell script that runs the job there, and ends what it started.

    It ends with 0 if `web.py` did, and `finished` is then a line of its output.
    """
    for code in blocks(text, "python"):
        if file := re.match(r"# (\w+\.py):", code):
            (folder / file[1]).write_text(code)
    (script,) = [block for block in blocks(text, "sh") if "web.py" in block]
    return script + "seen=$?\nkill $!\nwait $!\nfusion redis stop\nexit $seen\n"


def extra_of_first_job(text: str) -> str:
    """Return the extra that "First job" installs."""
    found = re.search(r"^pip install '\.\[(\w+)\]'", text, re.MULTILINE)
    if not found:
        raise ValueError("README.md has no line `pip install '.[EXTRA]'`")
    return found[1]
