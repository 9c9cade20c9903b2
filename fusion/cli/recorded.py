"""Write commands that change something to the audit. Each of them is `recorded`; a test checks all commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis import Redis

    from fusion.cli.context import Cli

_Function = Callable[..., Any]
#: Most names of a command's arguments in an entry; most jobs whose queues are looked up. For more jobs the entry names no queue.
_NAMED, _LOOKED_UP = 20, 100


def recorded(
    action: str,
    of: str = "",
    *,
    queues: str = "",
    jobs: str = "",
    says: Iterable[str] = (),
    only: str = "",
    unless: Iterable[str] = ("dry_run",),
) -> Callable[[_Function], _Function]:
    """Write an audit entry for each run of a command that connects to Redis. The decorator stands below `shared_options`.

    `of`: the argument that names what is changed. `queues`, `jobs`: the argument that names queues, or jobs whose queues are added. `says`:
    options that the entry contains, never ones with arguments of jobs. A run with an option of `unless`, or without `only`, changes nothing.
    """

    def decorate(function: _Function) -> _Function:
        def command(cli: Cli, **given: Any) -> Any:
            if any(given.get(name) for name in unless) or (only and not given[only]):
                return function(cli, **given)
            from fusion.audit import outcome_of

            def begin(connection: Redis) -> None:
                from fusion.audit import AuditedChange
                from fusion.store.layout.pauses import this_user

                chosen = _texts(given.get(queues)) or _queues_of(connection, _texts(given.get(jobs)))
                target = _named(_texts(given.get(of)) or _texts(given.get(jobs)) or _texts(given.get(queues)))
                details = {name: _plain(given[name]) for name in says}
                entry = AuditedChange(connection, this_user(), action, target, chosen, **details)
                entry.asked()
                cli.entry = entry

            cli.on_connect = begin
            outcome = "ok"
            try:
                return function(cli, **given)
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                if cli.entry:
                    cli.entry.done(outcome=outcome)

        vars(command)["__recorded__"] = action
        return update_wrapper(command, function)

    return decorate


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    return [str(one) for one in value] if isinstance(value, tuple | list) else [str(value)]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | tuple) else str(value)


def _named(names: list[str]) -> str:
    return " ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)


def _queues_of(connection: Redis, job_ids: list[str]) -> list[str]:
    """Return the queues of these jobs; none if there are too many jobs, or one is missing."""
    from fusion.exceptions import InvalidName
    from fusion.store.access import inspector_of
    from fusion.store.layout.names import check_job_id

    if not 0 < len(job_ids) <= _LOOKED_UP:
        return []
    try:
        rows = inspector_of(connection).table([check_job_id(job_id) for job_id in job_ids], ("origin",))
    except InvalidName:
        return []
    found = [row.get("origin") if isinstance(row, Mapping) else None for row in rows]
    return [] if None in found else list(dict.fromkeys(raw.decode("utf-8", "replace") for raw in found if raw))
