"""A name server of the test's own, by a shim for the processes under test (dns_shim.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: The only name it answers for.
HOST = "redis.example"


class Names:
    """What HOST resolves to in processes that have this environment."""

    def __init__(self, directory: Path) -> None:
        shim, self._file = directory / "names.so", directory / "names"
        source = Path(__file__).with_name("dns_shim.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
        self.env = {"LD_PRELOAD": str(shim), "DNS_SHIM": str(self._file), "DNS_SHIM_HOST": HOST}
        self.say("127.0.0.1")

    def say(self, what: str) -> None:
        partly = self._file.with_suffix(".new")
        partly.write_text(what)
        partly.rename(self._file)
