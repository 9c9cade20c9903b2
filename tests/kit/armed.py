"""Scripts whose hooks do something, for tests: in Fusion their bodies are empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from fusion.store.scripting import scripts

HOOKS = ("arrive", "claim", "return", "leave", "end")


@contextmanager
def armed(bodies: Mapping[str, str]) -> Iterator[None]:
    """Scripts that are made meanwhile have these bodies, in Lua, by hook. A body knows `id`, `key` and `queue`."""
    own = scripts.include

    def include(name: str) -> str:
        text = own(name)
        body = bodies.get(name.removeprefix("on_")) if name.startswith("on_") else None
        if body is None:
            return text
        assert text.count(" end\n") == 1, "the hook is empty"
        return text.replace(" end\n", f"\n{body}\nend\n")

    scripts.load.cache_clear()
    try:
        with patch.object(scripts, "include", include):
            yield
    finally:
        scripts.load.cache_clear()
