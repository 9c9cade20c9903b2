"""All actions of people, each under one name, for the audit, the logs, OpenAPI and the command line; and the scope that each needs over HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """`command`: the command that does it, empty if only the API does. `scope`: the scope that a caller of the API needs, empty if only the
    command line does it. `recorded`: it is written to the audit; the others appear in the events of jobs. `strict`: it is refused if its
    entry can't be written. `was`: its former names, in the audit and over HTTP."""

    name: str
    command: str = ""
    scope: str = ""
    recorded: bool = True
    strict: bool = False
    was: tuple[str, ...] = ()


ACTIONS = {
    action.name: action
    for action in (
        Action("enqueue", "enqueue", "operate", recorded=False),
        Action("retry_task", "", "operate", recorded=False),
        Action("requeue", "requeue", "operate"),
        Action("cancel", "cancel", "operate"),
        Action("stop", "stop", "operate"),
        Action("delete", "delete", "admin"),
        Action("quarantine", "quarantine", "operate"),
        Action("reprioritise", "reprioritise", "operate"),
        Action("reschedule", "reschedule", "operate"),
        Action("copy", "job copy", "operate"),
        Action("reveal", "job show --reveal", "admin", strict=True),
        Action("operation", "", "operate"),
        Action("operations_cancel", "operations cancel", "operate", was=("operation_cancel",)),
        Action("operations_run", "operations run"),
        Action("pause", "pause", "admin"),
        Action("unpause", "unpause", "admin"),
        Action("empty", "empty", "admin"),
        Action("queue_set", "queue set"),
        Action("suspend", "suspend", "admin", was=("fleet_suspend",)),
        Action("resume", "resume", "admin", was=("fleet_resume",)),
        Action("quiet", "quiet", "admin", was=("worker_quiet",)),
        Action("unquiet", "unquiet", "admin", was=("worker_unquiet",)),
        Action("worker_stop", "", "admin"),
        Action("limit_set", "limit set", "admin", was=("key_limit",)),
        Action("limit_pause", "limit pause", "admin", was=("key_pause",)),
        Action("limit_resume", "limit resume", "admin", was=("key_resume",)),
        Action("limit_release", "limit release", "admin", was=("key_release",)),
        Action("batch_cancel", "batch cancel", "operate"),
        Action("callbacks_retry", "callbacks retry", "operate", was=("callback_retry",)),
        Action("cron_run", "cron run", "operate"),
        Action("cron_pause", "cron pause", "admin"),
        Action("cron_resume", "cron resume", "admin"),
        Action("cron_remove", "cron remove", "admin"),
        Action("trash_restore", "trash restore", "operate"),
        Action("trash_empty", "trash empty", "admin"),
        Action("events_replay", "events replay"),
        Action("events_forget", "events forget"),
        Action("schema_raise", "schema --raise"),
    )
}
_NOW = {old: action.name for action in ACTIONS.values() for old in action.was}


def current_name(word: str) -> str:
    """Return the present name of an action; any other word unchanged."""
    return _NOW.get(word, word)
