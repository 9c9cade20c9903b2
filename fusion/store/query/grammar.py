"""Which jobs somebody means: one language for the command line, the API and operations on many jobs.

A query is terms with spaces between, and a job must fit all of them: `state:failed error:Timeout newer:1h -queue:otp`. docs/queries.md is its
page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

from fusion.exceptions import InvalidQuery
from fusion.kernel.scope import Scope
from fusion.kernel.states import STATES
from fusion.kernel.timeutil import EPOCH
from fusion.store.layout.names import is_reserved
from fusion.store.query import lexer
from fusion.store.query.fields import WITHIN, Meaning, meaning, of_queues, states_of
from fusion.store.query.lexer import Term
from fusion.store.query.patterns import literal
from fusion.store.query.rows import QUEUE_FIELDS, STATE_FIELDS, Row, entered_at, queue_of, state_of

__all__ = ["STATES", "InvalidQuery", "Query", "Row", "Term", "entered_at", "queue_of", "state_of"]

#: Fields that name queues.
_QUEUES = ("queue", WITHIN)
#: Values of all terms but those, of which there may be any number.
_MOST = 100
#: Values with wildcards, those of a scope not counted, and the characters of all of them: what one job costs grows with both.
_MOST_WILD, _WILD = 30, 500
#: In which states alone a job can be of which this is true.
_IMPLIED = {"quarantined": "failed", "held": "blocked"}


@dataclass(frozen=True)
class Query:
    """Conditions on jobs, all of which must hold. Make one by `Query.parse`."""

    terms: tuple[Term, ...]

    @classmethod
    def parse(cls, text: str) -> Query:
        """Read a query; an empty one means every job. InvalidQuery says what can't be read, where, and what to write instead."""
        found = cls(tuple(lexer.terms(text)))
        if sum(len(term.values) for term in found.terms if term.field not in _QUEUES) > _MOST:
            raise InvalidQuery(f"the query has more than {_MOST} values: ask for less at a time, or use wildcards")
        if len(found.wild) > _MOST_WILD or sum(map(len, found.wild)) > _WILD:
            raise InvalidQuery(
                f"the query has more than {_MOST_WILD} values with wildcards, or {_WILD} characters of them: ask for less at a time"
            )
        if len(found.text) > lexer.LONGEST:
            raise InvalidQuery(f"the query is longer than {lexer.LONGEST} characters: ask for less at a time")
        found._meanings  # noqa: B018  reads each term
        if not found._possible:
            raise InvalidQuery("no job is in all of these states at once: write them in one term, like state:failed,queued")
        return found

    @cached_property
    def text(self) -> str:
        """The query as it is written, the same for all ways to write it: `parse` makes the same of it."""
        return " ".join(term.text for term in self.terms)

    @cached_property
    def wild(self) -> tuple[str, ...]:
        """The values with wildcards, those of a scope left out."""
        values = (value for term in self.terms if term.field != WITHIN for value in term.values)
        return tuple(value for value in values if literal(value) is None)

    @cached_property
    def states(self) -> tuple[str, ...]:
        """The states that are asked for, in the order in which they are shown; none = any."""
        return self._possible if any(term.field == "state" for term in self.terms) else ()

    @cached_property
    def implied(self) -> tuple[str, ...]:
        """The states in which a job that fits can be, in that order: those asked for, and by what else is asked."""
        fit = set(self._possible)
        for term in self.terms:
            if term.field == "is" and not term.negative:
                fit &= {_IMPLIED[value.lower()] for value in term.values}
            if term.field == "group" and not term.negative:
                fit &= {"failed"}
        return tuple(state for state in STATES if state in fit)

    @cached_property
    def _possible(self) -> tuple[str, ...]:
        fit = set(STATES)
        for term in self.terms:
            if term.field == "state":
                fit = fit - states_of(term) if term.negative else fit & states_of(term)
        return tuple(state for state in STATES if state in fit)

    @cached_property
    def _meanings(self) -> tuple[Meaning, ...]:
        return tuple(meaning(term) for term in self.terms)

    @cached_property
    def fields(self) -> frozenset[str]:
        """The stored fields of a job that `matches` reads. With `func`, of jobs that lack it, `data` and `serializer` too."""
        return STATE_FIELDS.union(QUEUE_FIELDS, *(one.reads for one in self._meanings))

    def values(self, field: str) -> tuple[str, ...]:
        """The texts of which a job that fits has one in this field; none if nothing is asked of it, or something with wildcards."""
        best: tuple[str, ...] = ()
        for term in self.terms:
            if term.field == field and not term.negative:
                found = tuple(dict.fromkeys(text for value in term.values if (text := literal(value)) is not None))
                if len(term.values) == sum(literal(value) is not None for value in term.values) and (
                    not best or len(found) < len(best)
                ):
                    best = found
        return best

    def value(self, field: str) -> str | None:
        """The one text that a job that fits has in this field, if it must be that one; else None."""
        found = self.values(field)
        return found[0] if len(found) == 1 else None

    @cached_property
    def _tells_queues(self) -> bool:
        """True if it names a queue, or jobs by their ids: Fusion's own queues are left out of what does neither."""
        return bool(self.values("id")) or any(term.field in _QUEUES and not term.negative for term in self.terms)

    @cached_property
    def _reserved(self) -> Callable[[bytes | None, bytes | None], bool]:
        """Tells if a job with these fields of a queue is in one of Fusion's own."""
        return lru_cache(_MOST)(lambda origin, original: is_reserved(queue_of({"origin": origin, "original_queue": original})))

    @cached_property
    def asks_held(self) -> bool:
        """Only held jobs fit."""
        return any(
            term.field == "is" and not term.negative and all(value.lower() == "held" for value in term.values)
            for term in self.terms
        )

    def may_be_in(self, queue: str) -> bool:
        """Tell if a job of this queue could fit."""
        if not self._tells_queues and is_reserved(queue):
            return False
        row = {"origin": queue.encode()}
        return all(
            one.test("", row, EPOCH) for term, one in zip(self.terms, self._meanings, strict=True) if term.field in _QUEUES
        )

    def matches(self, job_id: str, row: Row, now: datetime) -> bool:
        """Tell if a job fits, by its fields (`fields`; None or absent: it has none) and the server's clock. Never raises."""
        if not self._tells_queues and self._reserved(row.get("origin"), row.get("original_queue")):
            return False
        # A search asks this of thousands of jobs: `all` over a generator would cost as much as most tests.
        for one in self._meanings:  # noqa: SIM110
            if not one.test(job_id, row, now):
                return False
        return True

    def within(self, scope: Scope) -> Query:
        """The same, of the queues alone that may be seen."""
        return self if scope.queues is None else Query((*self.terms, of_queues(scope.queues)))
