"""Parse typed queue names: exact names, wildcards, `all`, and lists with commas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import click

from fusion.exceptions import InvalidName
from fusion.store.layout.names import check_queue_name, is_pattern

#: `all` adds this wildcard to the configured queues: every known queue that is not reserved, also future ones.
ANY = "*"
_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,128}")


def check(name: str, *, patterns: bool = False) -> str:
    """Return `name`; a usage error with the rule if it is invalid."""
    if patterns and is_pattern(name):
        if not _PATTERN.fullmatch(name):
            raise click.UsageError(f"queue pattern {name!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ . - * ? [ ] !")
        return name
    try:
        return check_queue_name(name)
    except InvalidName as error:
        raise click.UsageError(str(error)) from None


def split(values: Iterable[str]) -> list[str]:
    """Return values like `("sms,email", "pn")` as one list without repetitions."""
    return list(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))


def expand_all(names: Sequence[str], configured: Sequence[str]) -> tuple[str, ...]:
    """Replace `all` by the configured queues and `*`; check every name."""
    wide = [part for name in names for part in ((*configured, ANY) if name == "all" else (name,))]
    return tuple(check(name, patterns=True) for name in dict.fromkeys(wide))


def known(names: Sequence[str], existing: Sequence[str]) -> tuple[str, ...]:
    """Check the names and replace each wildcard by the existing queues that it matches. Without names, return all existing queues."""
    if not names:
        return tuple(existing)
    found: list[str] = []
    for name in names:
        found += [queue for queue in existing if fnmatchcase(queue, name)] if is_pattern(name) else [name]
    return tuple(dict.fromkeys(found))
