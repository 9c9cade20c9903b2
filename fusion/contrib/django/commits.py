"""On commit: jobs enqueued in an open database transaction are sent when it is committed, and dropped if it is rolled back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from fusion.contrib.django.conf import option, outbox_alias
from fusion.contrib.django.signals import enqueue_failed
from fusion.exceptions import StoreUnavailable
from fusion.middleware import ProducerMiddleware

if TYPE_CHECKING:
    from fusion.job import Job
    from fusion.middleware import Enqueueing, Held

log = logging.getLogger("fusion.django")


class OnCommit(ProducerMiddleware):
    """Defers each call until the transactions open in its thread are committed, unless the call or the settings have `on_commit=False`."""

    knows_transactions = True

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Defer the call if a transaction is open."""
        if enqueueing.on_commit is False or (enqueueing.on_commit is None and not option("ON_COMMIT")):
            return
        if (by_hand := _by_hand()) and outbox_alias() is None:
            raise transaction.TransactionManagementError(
                f"autocommit of {by_hand} is off, so the commit can't be detected: enqueue in a block of atomic(), with on_commit=False "
                "at once, whether it is committed or not, or in an outbox, as a row of it"
            )
        if not (aliases := _open_aliases()):
            return
        wait = _Wait(enqueueing.hold(), aliases)
        for alias in aliases:
            transaction.on_commit(_group_of(alias).part(wait), using=alias)


#: The instance of this process.
ON_COMMIT = OnCommit()


class _Wait:
    """A deferred call, and the aliases whose commit it waits for."""

    __slots__ = ("held", "left")

    def __init__(self, held: Held, aliases: Sequence[str]) -> None:
        self.held, self.left = held, set(aliases)


class _Part:
    """A wait in the transaction of one alias. Only Django's list of callbacks refers to it. On a rollback, also of a savepoint, Django
    removes it from there; a wait whose part is gone is dropped."""

    __slots__ = ("__weakref__", "_group", "wait")

    def __init__(self, group: _Group, wait: _Wait) -> None:
        self._group, self.wait = group, wait

    def __call__(self) -> None:
        """Handle the commit of the transaction."""
        self._group.committed()


class _Group:
    """The calls that wait for one transaction of an alias, in the order in which they were enqueued. The first part that the commit calls
    sends them all."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._parts: list[ref[_Part]] = []

    def part(self, wait: _Wait) -> _Part:
        """Add one more."""
        if self._parts and self._parts[-1]() is None:  # rolled back
            self._parts = [known for known in self._parts if known() is not None]
        part = _Part(self, wait)
        self._parts.append(ref(part))
        return part

    def committed(self) -> None:
        """Send the calls that wait for nothing else. Raises what that raises."""
        parts, self._parts = self._parts, []
        ready = []
        for known in parts:
            if (part := known()) is not None:
                part.wait.left.discard(self._alias)
                if not part.wait.left:
                    ready.append(part.wait.held)
        send(ready, self._alias)

    def dropped(self, kept: Collection[object], error: BaseException) -> None:
        """Log the calls that are not sent although their transaction is committed, because another callback raised this error."""
        parts = [part for known in self._parts if (part := known()) is not None and part not in kept]
        if not parts:
            return
        self._parts = [known for known in self._parts if known() in kept]
        ids = [job_id for part in parts for job_id in part.wait.held.job_ids]
        log.error(
            "%s: enqueued in a transaction of %s that is committed, and not sent, as a callback of on_commit before them raised %s: enqueue again, "
            "and register that callback with robust=True",
            ", ".join(ids),
            self._alias,
            type(error).__name__,
        )


def _by_hand() -> str:
    """Return an alias whose transactions this thread begins and ends by hand (`set_autocommit(False)`); empty for none."""
    for one in connections.all(initialized_only=True):
        if one.connection is not None and not one.autocommit and not one.in_atomic_block:
            return str(one.alias)
    return ""


def _open_aliases() -> list[str]:
    """Return the aliases with a transaction open in this thread. A TestCase's own, which is never committed, counts only if there is no
    other: then the default's, as with `transaction.on_commit`."""
    found = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    own = [alias for alias in found if not _is_of_test(alias)]
    if own or not found:
        return own
    return [DEFAULT_DB_ALIAS if DEFAULT_DB_ALIAS in found else found[0]]


def _is_of_test(alias: str) -> bool:
    return all(getattr(block, "_from_testcase", False) for block in connections[alias].atomic_blocks)


def _group_of(alias: str) -> _Group:
    connection: Any = connections[alias]
    blocks = connection.atomic_blocks
    if blocks and getattr(blocks[0], "_from_testcase", False):
        return _Group(alias)  # a test runs only the callbacks that it has captured
    group: _Group | None = connection.__dict__.get("_fusion_group")
    if group is None:
        group = connection._fusion_group = _Group(alias)
        connection.run_and_clear_commit_hooks = _telling(connection, group)
    return group


def _telling(connection: Any, group: _Group) -> Callable[[], None]:
    """Return the function that runs the callbacks of a commit and reports dropped ones: if another app's callback raises, Django drops those
    behind it."""
    run = connection.run_and_clear_commit_hooks

    def run_and_tell() -> None:
        try:
            run()
        except BaseException as error:
            group.dropped({part for _, part, *_ in connection.run_on_commit}, error)
            raise

    return run_and_tell


def send(helds: Sequence[Held], using: str) -> list[Job]:
    """Send deferred calls. If a call is refused or can't be sent, log it, send the signal, and then raise: one error alone with the `job_ids`
    of its call; several StoreUnavailable as one with all ids, whose `repeat()` sends them all; else an ExceptionGroup."""
    from fusion.middleware import send_together

    found: list[Job] = []
    errors: list[Exception] = []
    unsent: list[Held] = []
    for held, sent in zip(helds, send_together(helds), strict=True):
        if not isinstance(sent, Exception):
            found += sent
            continue
        _tell(held, sent, using)
        errors.append(sent)
        unsent.append(held)
    if errors:
        raise _one_of(errors, unsent, using)
    return found


def _tell(held: Held, error: Exception, using: str) -> None:
    ids = held.job_ids
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    log.error(
        "%s%s, enqueued in a transaction of %s that is committed: %s: %s",
        ", ".join(ids[:3]),
        more,
        using,
        type(error).__name__,
        error,
    )
    if not isinstance(error, StoreUnavailable):
        error.job_ids = tuple(ids)  # type: ignore[attr-defined]
    for receiver, raised in enqueue_failed.send_robust(OnCommit, error=error, job_ids=tuple(ids), using=using, held=held):
        if isinstance(raised, Exception):
            log.error("receiver %r of enqueue_failed raised %s", receiver, type(raised).__name__, exc_info=raised)


def _one_of(errors: list[Exception], helds: list[Held], using: str) -> Exception:
    if len(errors) == 1:
        return errors[0]
    first = errors[0]
    if isinstance(first, StoreUnavailable) and all(isinstance(error, StoreUnavailable) for error in errors):
        whole = type(first)(*first.args)
        whole.__cause__ = first.__cause__
        whole.job_ids = tuple(job_id for held in helds for job_id in held.job_ids)
        whole.repeat_with(partial(send, helds, using))
        return whole
    return ExceptionGroup(f"{len(errors)} calls that enqueue in a transaction of {using} were refused after its commit", errors)
