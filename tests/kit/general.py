"""Scripts without the short ways that they take for plain jobs, and scripts with a clock that counts calls: to compare both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from fusion.store.scripting import scripts
from tools import lua_build

#: By source: each short way, and what stands in its place where every job goes the general way.
SHORT_WAYS: Mapping[str, Mapping[str, str]] = {
    "claim": {
        "local FEW_FIELDS = 16": "local FEW_FIELDS = -1",
        "  if size == 6 then": "  if false then",
        "if ties == 'k' and size ==": "if false and size ==",
    },
    "ring": {"class and not is_list(queue) and 1 or redis": "redis"},
    "limit": {
        "local known = named and arrivals[name]": "local known = nil",
        "local known = bounds[name]": "local known = nil",
        "local count = in_use[name] or redis": "local count = redis",
        "if not known.interval and count < known.limit and redis": "if false and redis",
        "if count == admitted then return end": "",
    },
    "turn": {
        "  single = count == 1 and": "  single = false and",
        "    local alike = line and": "    local alike = false and line and",
        "  local plain = not (": "  local plain = false and not (",
        "if not (tonumber(left[queue]) and left[queue] > 0) then": "if true then",
    },
    "commit": {"local PLAIN_FIELDS = 10": "local PLAIN_FIELDS = -1"},
    "enqueue": {
        "local looked, remains = false, 0": "local looked, remains = true, 0",
        "  if remains > 0 then\n    status": "  if true then\n    status",
        "if remains > 0 and not nonce": "if not nonce",
    },
}
_CLOCK = "redis.call('TIME')"
#: Seven tenths of a millisecond more with each call. The second is none of a minute's or day's edge.
_COUNTED = "{ '1700000123', redis.call('INCR', P .. 'test:clock') * 700 + 150000 }"
_ON_NEED = re.compile(r"^-- (?:RARE|ONCE): .*\n", re.MULTILINE)


@cache
def _built(name: str, general: bool) -> str:
    def read(path: Path) -> str:
        text = path.read_text()
        if path.stem == "time":
            assert _CLOCK in text
            text = text.replace(_CLOCK, _COUNTED)
        for short, long in SHORT_WAYS.get(path.stem, {}).items() if general else ():
            assert text.count(short) == 1, f"{path.stem} has not once: {short}"
            text = text.replace(short, long)
        return _ON_NEED.sub("", text) if general and name == "enqueue" else text

    return lua_build.build(name, read)


@contextmanager
def counted_scripts(*, general: bool) -> Iterator[None]:
    """Scripts made in this context get a clock that counts calls. `general`: they also have no short ways, and `enqueue` makes the functions
    that RARE names at once. Lua has not enough locals to do that for RARER, or in `turn`."""
    scripts.load.cache_clear()
    try:
        with patch.object(scripts, "_read", lambda name: _built(name, general)):
            yield
    finally:
        scripts.load.cache_clear()
