"""Check a request for an operation, and turn it into a plan with the states that it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fusion.exceptions import InvalidQuery
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.operations.actions import ACTIONS, BulkAction
from fusion.store.query.grammar import Query

#: Names of priorities.
PRIORITIES = {"high": 2, "moderate": 1, "low": 0}
_LONGEST_REASON = 500


def read_priority(value: object) -> int:
    """Return the priority for `high`, `moderate`, `low` or a number from 0 to 255. A ValueError names the allowed values."""
    if isinstance(value, str) and value.lower() in PRIORITIES:
        return PRIORITIES[value.lower()]
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 255:
        raise ValueError(f"priority {str(value)[:40]!r}: use high, moderate, low or a whole number from 0 to 255")
    return number


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """An operation before it is stored. `query` names the states that it changes; `args`: further arguments of the action."""

    action: BulkAction
    query: Query
    args: Mapping[str, str]

    @classmethod
    def of(
        cls, name: str, text: str, *, reason: str = "", priority: object = None, scope: Scope = EVERYTHING, purge: bool = False
    ) -> OperationPlan:
        """Check a request and return its plan. `purge`: deleted jobs are not kept in the trash. A ValueError (InvalidQuery, if the query is
        wrong) names the fix."""
        action = ACTIONS.get(name)
        if action is None:
            raise ValueError(f"action {name[:40]!r}: use one of {', '.join(ACTIONS)}")
        asked = Query.parse(text)
        if not asked.text:
            raise InvalidQuery("an operation needs a query that says which jobs: state:failed, queue:sms older:2h ...")
        named = any(term.field == "state" and not term.negative for term in asked.terms)
        wrong = [state for state in asked.states if state not in action.can]
        if named and wrong:
            raise InvalidQuery(f"{name} does nothing to jobs that are {', '.join(wrong)}: {action.fix}. {_use(action)}")
        parts = [asked.text]
        if not named:
            parts.append("state:" + ",".join(state for state in action.states if not asked.states or state in asked.states))
        args = dict[str, str]()
        if name == "requeue":
            wants = any(term.field == "is" and not term.negative and "quarantined" in term.values for term in asked.terms)
            args["quarantined"] = "1" if wants else "0"
            if not wants and not any(term.field == "is" and term.negative for term in asked.terms):
                parts.append("-is:quarantined")
        if name == "quarantine":
            if not reason.strip():
                raise ValueError("reason: quarantine needs one, for people who find the jobs later")
            args["reason"] = reason.strip()[:_LONGEST_REASON]
        if purge and name != "delete":
            raise ValueError("purge: only delete takes it")
        if purge:
            args["purge"] = "1"
        if name == "reprioritise":
            args["priority"] = str(read_priority(priority))
        elif priority is not None:
            raise ValueError("priority: only reprioritise takes one")
        return cls(action, Query.parse(" ".join(parts)).within(scope), args)

    @classmethod
    def fits(cls, name: str, text: str) -> bool:
        """Return True if the action can change jobs in the states that this query names."""
        try:
            return bool(cls.of(name, text, reason="any", priority="moderate" if name == "reprioritise" else None).states)
        except ValueError:
            return False

    @property
    def states(self) -> tuple[str, ...]:
        """The states that it changes."""
        return tuple(state for state in self.query.implied if state in self.action.can)

    def record(self, by: str, total: int, keyed: bool) -> dict[str, object]:
        """Return the fields of its new record. `keyed`: its author has signing keys, so only a process with keys may run it."""
        fields = {
            "action": self.action.name,
            "query": self.query.text,
            "args": json.dumps(self.args),
            "states": " ".join(self.states),
        }
        return {**fields, "by": by, "total": total, "keyed": 1 if keyed and self.action.name == "reprioritise" else None}


def _use(action: BulkAction) -> str:
    those = f" for {', '.join(action.states)}" if action.also else ""
    return f"Leave out state:{those}, or name some of {', '.join(action.can)}"
