"""Readers of the values of settings, whether they are Python (a module's, a flag's) or text (the environment's)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from fusion.kernel.timeutil import FURTHEST
from fusion.settings.flags import Flag

_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)\s*([smhd]?)\Z")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?\Z", re.IGNORECASE)
#: Seconds that one attempt may take. Above a day a limit is useless, and from 24 days on poll() ignores it.
ATTEMPT = 24 * 3600.0
#: Most jobs that one worker runs at a time; most processes for them.
SLOTS, PROCESSES = 16_384, 1024
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?\Z")


def setting(
    default: Any,
    read: Callable[[Any], Any],
    *,
    env: tuple[str, ...] = (),
    factory: bool = False,
    unit: str = "",
    flags: Flag | tuple[Flag, ...] = (),
) -> Any:
    """Declare a field of the settings. `env`: other programs' names for it, in order of rank, read after FUSION_<FIELD>. `unit`: for
    docs/settings.md, if the reader does not give it. `flags`: its flags on the command line. The comment above the field is its text in
    docs/settings.md."""
    metadata = {"read": read, "env": env, "unit": unit, "flags": flags if isinstance(flags, tuple) else (flags,)}
    return field(default_factory=default, metadata=metadata) if factory else field(default=default, metadata=metadata)


class Invalid(ValueError):
    """A value is invalid; the message states the rule."""


def seconds(low: float, high: float = FURTHEST, *, whole: bool = False, endless: bool = False) -> Callable[[Any], float]:
    """`30`, `2.5`, `"90s"`, `"5m"`, `"2h"`, `"1d"`; whole ones where Redis wants that; -1 for no limit where `endless`."""

    def read(value: Any) -> float:
        match = None if isinstance(value, bool) else _DURATION.match(str(value).strip().lower())
        rule = f"use {'whole ' * whole}seconds, or 30s, 5m, 2h, 1d; from {low:g} to {high:.0f}" + (
            ", or -1 for no limit" if endless else ""
        )
        if match is None:
            raise Invalid(rule)
        number = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
        if endless and number == -1:
            return -1
        if not low <= number <= high or (whole and not number.is_integer()):
            raise Invalid(rule)
        return int(number) if number.is_integer() else number

    return read


def size(value: Any) -> int:
    """Bytes from `1048576`, `512k`, `1m`, `2g`."""
    match = None if isinstance(value, bool) else _SIZE.match(str(value).strip())
    if match is None or int(match[1]) < 1:
        raise Invalid("use bytes, or 512k, 1m")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}[match[2].lower()]


def whole(low: int, high: int | None = None) -> Callable[[Any], int]:
    """A whole number from `low` to `high`."""

    def read(value: Any) -> int:
        try:
            number = -1 if isinstance(value, (bool, float)) else int(value)
        except (TypeError, ValueError):
            number = low - 1
        if number < low or (high is not None and number > high):
            raise Invalid(f"use a whole number from {low}" + ("" if high is None else f" to {high}"))
        return number

    return read


def horses(value: Any) -> int:
    """`4`, or `auto`: the CPUs that this process may use."""
    if str(value).strip().lower() == "auto":
        return cpus()
    try:
        return whole(1, PROCESSES)(value)
    except Invalid:
        raise Invalid("use a whole number from 1 to 1024, or auto for a process per CPU") from None


def cpus(quota: str = "/sys/fs/cgroup/cpu.max") -> int:
    """Return how many CPUs this process may use at a time: its affinity, or less if a container has a quota."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open(quota) as file:
            limit, period = (int(word) for word in file.read().split())
    except (OSError, ValueError):  # no cgroup v2, or `max`: no quota
        return found
    return max(1, min(found, round(limit / period)))


def flag(value: Any) -> bool:
    """`1`, `true`, `yes`, `on` and their opposites, in any case."""
    text = str(value).strip().lower()
    if text in ("1", "true", "t", "yes", "y", "on"):
        return True
    if text in ("0", "false", "f", "no", "n", "off", ""):
        return False
    raise Invalid("use true or false")


def text(value: Any) -> str:
    """A text that is not empty, without spaces around it."""
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise Invalid("use a text that is not empty")
    return str(value).strip()


def path(value: Any) -> str:
    """An absolute path; `~` is the home directory."""
    return os.path.abspath(os.path.expanduser(text(value)))


def matching(pattern: str, rule: str) -> Callable[[Any], str]:
    """A text of this pattern; `rule` says it in words."""
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise Invalid(rule)
        return value

    return read


class _Gates(dict[str, dict[str, str | int | None]]):
    """The result of `gates`. Its times are milliseconds, so parsing it again would change them."""


def gates(value: Any) -> dict[str, dict[str, str | int | None]]:
    """Parse `sms limit=20 rate=100/60s burst=5; email max_wait=5m`, or a dict of dicts: settings of queues, as Redis stores them."""
    if isinstance(value, _Gates):
        return value
    from fusion.exceptions import OptionError
    from fusion.kernel.gates import gate_values

    rule = "use QUEUE limit=20 rate=100/60s burst=5 max_wait=5m max_length=10000 timeout=1h; QUEUE ..., or a dict of dicts"
    if isinstance(value, str):
        queues = [words for words in map(str.split, value.split(";")) if words]
        if not all("=" in word for words in queues for word in words[1:]):
            raise Invalid(rule)
        value = {words[0]: dict(word.split("=", 1) for word in words[1:]) for words in queues}
    if not isinstance(value, Mapping) or not all(isinstance(wanted, Mapping) for wanted in value.values()):
        raise Invalid(rule)
    found = _Gates()
    for queue, wanted in value.items():
        if not re.fullmatch(r"[A-Za-z0-9.-][A-Za-z0-9_.-]{0,127}", str(queue)) or queue == "failed":
            raise Invalid(f"{queue!r} is not a valid queue name")
        try:
            found[str(queue)] = gate_values(
                {name: _number(given) if name in ("limit", "burst", "max_length") else given for name, given in wanted.items()}
            )
        except OptionError as error:
            raise Invalid(f"{queue}: {error}") from None
    return found


def queue_executors(value: Any) -> dict[str, str]:
    """Parse `sms=asyncio mail=thread`, or a dict: what the jobs of some queues run in."""
    if isinstance(value, str):
        value = _pairs(value.replace(",", " ").split())
    if not isinstance(value, Mapping):
        raise Invalid("use QUEUE=asyncio QUEUE=thread, or a dict")
    for queue in value:
        if not re.fullmatch(r"[A-Za-z0-9.-][A-Za-z0-9_.-]{0,127}", str(queue)):
            raise Invalid(f"{queue!r} is not a valid queue name")
    return {str(queue): _executor_of(str(queue), kind) for queue, kind in value.items()}


def _pairs(words: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        queue, sign, kind = word.partition("=")
        if not sign:
            raise Invalid(f"{word!r}: use QUEUE=asyncio QUEUE=thread")
        if found.setdefault(queue, kind) != kind:
            raise Invalid(f"{word}: the jobs of {queue} run in {found[queue]} already; give one of the two")
    return found


def _executor_of(queue: str, kind: object) -> str:
    try:
        return executor(kind)
    except Invalid as rule:
        raise Invalid(f"{queue}={kind}: {rule}") from None


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def dotted(value: Any) -> str:
    """The dotted path of a function."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", value):
        raise Invalid("use the dotted path of a function, like shop.hooks.after_fork")
    return value


def dotted_paths(value: Any) -> tuple[str, ...]:
    """A list of dotted paths, or a text with commas between them; each once."""
    found = names(value)
    for path in found:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", path):
            raise Invalid(f"{path!r} is not a dotted path, like shop.hooks.Tracing")
    return found


def choice(*names: str) -> Callable[[Any], str]:
    """One of these words, in any case."""

    def read(value: Any) -> str:
        if str(value).lower() not in names:
            raise Invalid("use one of " + ", ".join(names))
        return str(value).lower()

    return read


#: What jobs run in.
executor = choice("process", "pool", "thread", "asyncio")


def names(value: Any) -> tuple[str, ...]:
    """A list of names, or a text with commas between them; each once."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in items):
        raise Invalid("use a list of names, or a text with commas between them")
    names = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if not names:
        raise Invalid("name at least one")
    return names


def weights(value: Any) -> tuple[str, ...]:
    """Weights of queues, `sms=3`: a list of them, or a text with commas between them."""
    found = names(value)
    for item in found:
        name, _, weight = item.rpartition("=")
        if not name or not weight.isascii() or not weight.isdigit() or not 1 <= int(weight) <= 1000:
            raise Invalid(f"use QUEUE=N with N from 1 to 1000, like sms=3; {item!r} is not of that form")
    if len({item.rpartition("=")[0] for item in found}) < len(found):
        raise Invalid("give each queue one weight")
    return found


def ports(value: Any) -> tuple[int, ...]:
    """TCP ports, in a list or with commas between them."""
    items = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else value
    try:
        found = tuple(dict.fromkeys(whole(1, 65535)(item) for item in items))
    except (TypeError, Invalid):
        found = ()
    if not found:
        raise Invalid("use ports from 1 to 65535, in a list or with commas between them")
    return found


def callback_secrets(value: Any) -> dict[str, tuple[str, ...]]:
    """Parse secrets by host; a list, or a text with commas or line ends between them, is for all hosts. Messages never hold a secret."""
    rule = 'use secrets (whsec_...) by host, {"hooks.example.com": ["whsec_..."], "*": [...]}, as a JSON object in a text; or a list for all hosts'
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("{") else re.split(r"[,\s]+", value)
        except ValueError:
            raise Invalid(rule) from None
    by_host = value if isinstance(value, Mapping) else {"*": value}
    found = {}
    for host, items in by_host.items():
        items = [items] if isinstance(items, str) else items
        if not isinstance(host, str) or not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
            raise Invalid(rule)
        found[host.lower()] = tuple(item.strip() for item in items if item.strip())
    if not found or not all(found.values()):
        raise Invalid(rule)
    return found


_KEY = re.compile(r"([A-Za-z0-9_-]{1,32}):(\S.*\S)", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]+")
_MAKE_KEY = "make one with: python -c \"import secrets; print('k1:' + secrets.token_urlsafe(32))\""


def secret_keys(value: Any) -> tuple[str, ...]:
    """Parse `id:secret` texts, or one text separated by commas or line ends; `#` begins a comment. Messages never hold a secret."""
    items = re.split(r"[,\n]", value) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise Invalid("use a list of texts id:secret, or a text with commas between them")
    keys = tuple(item.strip() for item in items if item.strip() and not item.lstrip().startswith("#"))
    if not keys:
        raise Invalid(f"name at least one id:secret; {_MAKE_KEY}")
    ids = set()
    for place, key in enumerate(keys, 1):
        match = _KEY.fullmatch(key)
        if match is None:
            raise Invalid(
                f"key {place} must be id:secret: an id of 1 to 32 of A-Z a-z 0-9 _ -, a colon, and a secret without commas; {_MAKE_KEY}"
            )
        name, secret = match[1], match[2]
        need = 64 if _HEX.fullmatch(secret) else 32
        if len(secret) < need or len(set(secret)) < 8:
            raise Invalid(
                f"the secret of key {name} is too weak: use 32 random bytes, as 32 or more characters or as 64 or more hex digits; {_MAKE_KEY}"
            )
        if name in ids:
            raise Invalid(f"two keys have the id {name}; give each its own, so that a signature names one")
        ids.add(name)
    return keys


def mapping(value: Any) -> dict[str, Any]:
    """A mapping; from the environment as JSON."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise Invalid("use a dict; in the environment, a JSON object")
    return dict(found)


def redis_url(value: Any) -> str:
    """The URL of a Redis."""
    url = text(value)
    if not re.match(r"(rediss?|unix|rediss?\+(sentinel|cluster))://", url):
        raise Invalid(
            "use redis://host:6379/0, rediss:// for TLS, unix:///path/redis.sock, redis+sentinel://host:26379/mymaster/0"
            " or redis+cluster://host:6379,host2:6379"
        )
    return url


def prefix(value: Any) -> str:
    """A prefix of keys, with one hash tag at most."""
    found = text(value)
    if len(found) > 64 or not re.fullmatch(r"[A-Za-z0-9_.:-]+|[A-Za-z0-9_.:-]*\{[A-Za-z0-9_.-]+\}[A-Za-z0-9_.:-]*", found):
        raise Invalid("use 1 to 64 of the characters A-Z a-z 0-9 _ . : -, and for a cluster one hash tag, like {fusion}")
    return found


def addresses(value: Any) -> dict[str, str]:
    """Addresses by other addresses: `10.0.0.1:7000=host:17000`, as many as there are nodes, or a dict."""
    if isinstance(value, str):
        value = dict(word.partition("=")[::2] for word in value.replace(",", " ").split())
    if not isinstance(value, Mapping):
        raise Invalid("use HOST:PORT=HOST:PORT, or a dict")
    for one in (*value, *value.values()):
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}", str(one)):
            raise Invalid(f"{one!r} is no address; use HOST:PORT=HOST:PORT for each node")
    return {str(there): str(here) for there, here in value.items()}


def percent(value: Any) -> float:
    """`90`, `"90"`, `"90%"`."""
    match = None if isinstance(value, bool) else _PERCENT.match(str(value).strip())
    number = float(match[1]) if match else 0
    if not 0 < number <= 100:
        raise Invalid("use a percentage above 0 and up to 100")
    return number


def host(value: Any) -> str:
    """A host name or an address."""
    found = text(value)
    if not re.fullmatch(r"[A-Za-z0-9_.:%-]+", found):
        raise Invalid("use a host's name or address, like 127.0.0.1 or 0.0.0.0")
    return found
