"""The actions on jobs, with the words of their buttons and questions."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel.actions import ACTIONS
from fusion.kernel.states import ENDED, REQUEUEABLE, WAITING


@dataclass(frozen=True, slots=True)
class Verb:
    """`name`: its name in the API; `label`: the text of its button; `word`: the verb in a sentence; `doing`, `done`: its forms during and after.
    `asks`: a further argument that the API needs. `states`: the states in which a single job has the button."""

    name: str
    label: str
    word: str
    doing: str
    done: str
    danger: bool = False
    asks: str = ""
    states: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """The scope that the viewer needs."""
        return ACTIONS[self.name].scope


VERBS = {
    verb.name: verb
    for verb in (
        Verb("requeue", "Requeue", "requeue", "Requeueing", "requeued", states=REQUEUEABLE),
        Verb("cancel", "Cancel", "cancel", "Canceling", "canceled", danger=True, states=(*WAITING, "started")),
        Verb("stop", "Stop", "stop", "Stopping", "stopped, or being stopped", danger=True, states=("started",)),
        Verb("quarantine", "Quarantine", "set aside", "Setting aside", "set aside", asks="reason"),
        Verb("reprioritise", "Reprioritise", "move to another priority", "Moving", "moved to another priority", asks="priority"),
        Verb(
            "delete", "Delete", "delete", "Deleting", "deleted", danger=True,
            states=(*WAITING, *ENDED),
        ),
    )
}  # fmt: skip


def subject(by: list[dict[str, object]], complete: bool, total: int) -> str:
    """Return in words what a dry run matched: `344 failed jobs of queue sms`."""
    states = list(dict.fromkeys(str(one["state"]) for one in by))
    queues = list(dict.fromkeys(str(one["queue"]) for one in by))
    which = f"{states[0]} " if len(states) == 1 else ""
    where = f" of queue {queues[0]}" if len(queues) == 1 else f" of {len(queues):,} queues" if queues else ""
    about = "" if complete else "at least "
    return f"{about}{total:,} {which}{'job' if total == 1 else 'jobs'}{where}"
