"""`@recurring`: declares in code when a task runs by itself. Lean, since task modules import it in every job's process."""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from datetime import timedelta
    from typing import Any, TypeVar, Unpack

    from fusion.cron.scheduler import DeclaredOptions

    F = TypeVar("F", bound=Callable[..., Any])


class Declaration:
    """One use of `@recurring`, unchecked: `fusion.cron.declared` checks it when it collects."""

    __slots__ = ("every", "expr", "func", "options")

    def __init__(self, func: Callable[..., Any], expr: str | None, every: Any, options: dict[str, Any]) -> None:
        self.func, self.expr, self.every, self.options = func, expr, every, options


_declared: list[Declaration] = []


def recurring(
    expr: Any = None, *, every: float | str | timedelta | None = None, **options: Unpack[DeclaredOptions]
) -> Callable[[F], F]:
    """Run the function by a cron expression, or `every` so often (seconds, "5m", a timedelta).

    `options` are those of `Scheduler.cron`. A scheduler that loads the module (`--schedule`, or `--tasks`) stores the entry. Its id is the
    function's dotted name with `-`, unless `id=` is given. The function itself is unchanged.
    """
    if callable(expr) or (expr is None) == (every is None):
        raise TypeError('write @recurring("*/5 * * * *") or @recurring(every="5m"), with one of the two')

    def decorate(func: F) -> F:
        """Record the declaration; the function itself is unchanged."""
        _declared.append(Declaration(func, expr, every, {**options}))
        return func

    return decorate


def declared() -> tuple[Declaration, ...]:
    """Return all declarations of this process, in the order in which their modules were loaded."""
    return tuple(_declared)
