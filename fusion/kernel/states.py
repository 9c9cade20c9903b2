"""The states of a job, each told once. Scripts (through `make lua`), the query language, bulk actions, the command line and pages follow from
this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """One state.

    - `ended`: the job does not run again by itself;
    - `waits`: it is to run, and may be canceled, stopped, moved and deleted at once;
    - `requeue`: a person may put it back;
    - `light`: how a person is to take it: `good`, `bad`, `warn`; empty for a job on its way;
    - `key`: the key of its set behind the prefix, `{}` for the queue; empty for `<name>:<queue>`.
    """

    name: str
    ended: bool = False
    waits: bool = False
    requeue: bool = False
    light: str = ""
    key: str = ""

    def set_of(self, queue: str) -> str:
        """Return the key of its set behind the prefix."""
        return self.key.format(queue) if self.key else f"{self.name}:{queue}"


#: All states, in the order in which they are shown.
STATES = {
    state.name: state
    for state in (
        State("started", key="wip:{}"),
        State("failed", ended=True, requeue=True, light="bad", key="queue:failed"),
        State("blocked", waits=True, light="warn"),
        State("queued", waits=True, key="queue:{}"),
        State("scheduled", waits=True, key="scheduler:scheduled_jobs"),
        State("deferred", waits=True),
        State("canceled", ended=True, requeue=True, light="warn"),
        State("stopped", ended=True, requeue=True, light="warn"),
        State("finished", ended=True, light="good"),
    )
}
ENDED = tuple(name for name, state in STATES.items() if state.ended)
#: Those that wait, in the order in which a walk meets them: what moves on while it passes is met later.
WAITING = (
    "scheduled",
    "deferred",
    *(name for name, state in STATES.items() if state.waits and name not in ("scheduled", "deferred")),
)
REQUEUEABLE = tuple(name for name, state in STATES.items() if state.requeue)
#: Those that have ended and whose sets are of one queue.
KEPT = tuple(name for name, state in STATES.items() if state.ended and not state.key)
#: The kind of light of each state that has one.
LIGHTS = {name: state.light for name, state in STATES.items() if state.light}
