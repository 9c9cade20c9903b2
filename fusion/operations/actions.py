"""The actions of operations on jobs, and the states in which each is possible."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel.actions import ACTIONS as EVERY
from fusion.kernel.states import ENDED, REQUEUEABLE, WAITING

#: All states, in the order in which a walk meets them: a job that moves on meanwhile is met again in a later state.
ORDER = (*WAITING, "started", *ENDED)


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One action. `states`: the states that it changes if the query names none; `also`: further states that it can change. `done`: the word
    for a changed job. `asks`: the command line asks for confirmation. `fix`: what to do with jobs of other states."""

    name: str
    states: tuple[str, ...]
    done: str
    fix: str
    also: tuple[str, ...] = ()
    asks: bool = True

    @property
    def role(self) -> str:
        """The scope that a caller of the HTTP API needs."""
        return EVERY[self.name].scope

    @property
    def can(self) -> tuple[str, ...]:
        """The states that it can change."""
        return (*self.states, *self.also)


ACTIONS = {
    action.name: action
    for action in (
        BulkAction("requeue", REQUEUEABLE, "requeued", f"only {', '.join(REQUEUEABLE[:-1])} and {REQUEUEABLE[-1]} jobs can be requeued", asks=False),
        BulkAction("cancel", WAITING, "canceled", "what has ended can't be canceled", also=("started",)),
        BulkAction("stop", (*WAITING, "started"), "stopped, or told to", "what has ended can't be stopped"),
        BulkAction(
            "delete", (*WAITING, *ENDED), "deleted", "a running job can't be deleted: stop it first (`stop --query`)"
        ),
        BulkAction("quarantine", ("failed",), "quarantined", "only failed jobs can be set aside"),
        BulkAction("reprioritise", WAITING, "moved", "only jobs that wait have a place to change; enqueue others anew"),
    )
}  # fmt: skip

#: Why a job was skipped or refused, by the word that the Lua script returns.
WHY = {
    "foreign": "another program's jobs, which Fusion leaves alone",
    "list": "in a LIST queue, where outsiders keep the order",
    "quarantined": "set aside meanwhile",
    "unknown": "without a state that this version knows",
    "corrupt": "without a call to run",
    "duplicate": "another job has their unique key",
    "cycle": "they would wait for themselves",
    "error": "a key of theirs holds something else (see `doctor`)",
    "altered": "changed during the operation; run it again",
    "keyless": "signed, and the process that ran the operation has no secret_keys; run it where these are set",
    "flawed": "their signature does not fit: they were altered by something that has no key",
}
