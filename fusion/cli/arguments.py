"""RQ's grammar for a task's arguments: `text`, `:JSON`, `%literal`, `key=text`, `key:=JSON`, `key%=literal`."""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Iterable
from typing import Any

import click

from fusion.exceptions import DeserializationError
from fusion.kernel.serializers import JSONSerializer


class FiniteRange(click.FloatRange):
    """`click.FloatRange` without nan, which is in every range, and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; a usage error for nan and inf."""
        found = float(super().convert(value, param, ctx))
        return found if math.isfinite(found) else self.fail(f"must be a number of seconds, got {value!r}", param, ctx)


def parse(arguments: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments. A usage error names an argument that can't be parsed."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in arguments:
        key, kind, text = _split(argument)
        where = f"argument {len(args) + 1}" if key is None else f"keyword {key!r}"
        value = _value(kind, _content(text, where), where)
        if key is None:
            args.append(value)
        elif key in kwargs:
            raise click.UsageError(f"{where} is given twice")
        else:
            kwargs[key] = value
    return args, kwargs


def _split(argument: str) -> tuple[str | None, str, str]:
    """Split an argument into its key or None, its kind (`:`, `%` or empty) and the rest."""
    if argument[:1] in (":", "%"):
        return None, argument[0], argument[1:]
    key, equals, text = argument.partition("=")
    if not key or not equals:
        return None, "", argument
    kind = key[-1] if key[-1] in ":%" else ""
    key = key.removesuffix(kind)
    if not key.isidentifier():
        raise click.UsageError(
            f"{argument[:60]!r} has a '=', but {key!r} can't be a keyword; for a text write it as JSON, :'\"...\"'"
        )
    return key, kind, text


def _content(text: str, where: str) -> str:
    """Return the text itself, or for `@file` the content of the file."""
    if not text.startswith("@"):
        return text
    try:
        with open(text[1:], encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise click.UsageError(
            f"{where}: file {text[1:]!r} can't be read: {reason}; for a text with @ in front use :'\"@...\"'"
        ) from None


def _value(kind: str, text: str, where: str) -> Any:
    if kind == ":":
        try:
            return JSONSerializer().parse(text.encode())
        except (DeserializationError, UnicodeEncodeError) as error:
            raise click.UsageError(f"{where}: {text[:60]!r} is not JSON that can be sent: {error}") from None
    if kind == "%":
        try:
            return literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise click.UsageError(
                f"{where}: {text[:60]!r} is not a Python literal, like 1, 'text', [1, 2] or {{'a': 1}}"
            ) from None
    return text
