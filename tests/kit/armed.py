"""Scripts whose hooks do something more, for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from fusion.store.scripting import scripts
from tools import lua_build

HOOKS = ("arrive", "claim", "return", "leave", "end")


class Reading:
    """How the sources of the scripts are read now; the model builds its scripts by it, too."""

    read: Callable[[Path], str] = staticmethod(Path.read_text)


@contextmanager
def armed(bodies: Mapping[str, str]) -> Iterator[None]:
    """Scripts that are made meanwhile do this first, in Lua, by hook. It knows `id`, `key` and `queue`."""

    def read(path: Path) -> str:
        return re.sub(
            r"^(local function on_(\w+)\(.*?\))(?: (end))?$",
            lambda m: "\n".join(filter(None, (m[1], bodies.get(m[2]), m[3]))),
            path.read_text(),
            flags=re.MULTILINE,
        )

    scripts.load.cache_clear()
    try:
        with (
            patch.object(Reading, "read", staticmethod(read)),
            patch.object(scripts, "_read", lambda name: lua_build.build(name, read)),
        ):
            yield
    finally:
        scripts.load.cache_clear()
