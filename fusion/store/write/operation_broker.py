"""The part of the Broker for operations on everything a query matches; and the audit of what people did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from fusion.kernel import defaults
from fusion.kernel.failpoints import failpoint
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.scripting.host import ScriptHost, to_ms, to_texts
from fusion.store.scripting.scripts import Script
from fusion.store.write.job_broker import JobBroker

#: Most operations that run at a time; most ended ones that are kept; for how many seconds these are kept.
MOST_RUNNING, MOST_ENDED, KEPT = 100, 1000, 7 * 86400.0
#: Jobs that one call of a script changes at most.
PER_CALL = 10

_Call = tuple[Script, Mapping[str, str], Mapping[str, Any], Sequence[Any]]


class Move(NamedTuple):
    """A job that is to get another priority. `old`: its signature as it was read, empty for none. `new`: the signature that it gets, or `!`
    and a word, the reason why it is refused."""

    id: str
    old: str = ""
    new: str = ""


class OperationBroker(JobBroker):
    """Operations: their records, and the changes that they make to jobs. `fusion.operations` does the walk."""

    # -- records

    def open_operation(self, operation: str, fields: Mapping[str, Any]) -> tuple[bool, str]:
        """Create an operation. Returns True and its cut-off by the server's clock, or False and how many run, if no more may."""
        pairs = codec.to_pairs(fields)
        args = {
            "id": operation,
            "most_running": MOST_RUNNING,
            "most_ended": MOST_ENDED,
            "keep_ms": to_ms(KEPT),
            "n_pairs": len(pairs),
        }
        status, told = self._script("open_operation")(self._record(operation), args, pairs)
        return status == b"ok", codec.text(told) if isinstance(told, bytes) else str(told)

    def lease_operation(self, operation: str, carrier: str, lease: float) -> tuple[str, dict[str, str]]:
        """Take an operation for `lease` seconds, 0 to give it up. Returns `running` and its fields; `busy` and its `carrier`; `missing`; or
        how it ended."""
        keys = {"operation": self.keys.operation(operation)}
        status, *flat = to_texts(self._script("lease_operation")(keys, {"carrier": carrier, "lease_ms": to_ms(lease)}))
        if status == "busy":
            return status, {"carrier": flat[0]}
        return status, dict(zip(flat[::2], flat[1::2], strict=True))

    def advance_operation(
        self, operation: str, part: int, step: str, place: str, cursor: int, run_id: str, *, skipped: int = 0, over: bool = False
    ) -> str:
        """Let the walk continue behind the part of this number, or end it. Returns `ok`, `done`, `stale` (another was first, or it was
        canceled) or `missing`. `step` identifies this call."""
        args = {
            "id": operation,
            "part": part,
            "step": step,
            "place": place,
            "cursor": cursor,
            "run_id": run_id,
            "skipped": skipped,
            "over": int(over),
        }
        return codec.text(self._script("advance_operation")(self._record(operation), args))

    def cancel_operation(self, operation: str, by: str = "") -> str:
        """Stop an operation from changing further jobs: `canceled`, `done` (it was over) or `missing`."""
        return codec.text(self._script("cancel_operation")(self._record(operation), {"id": operation, "by": by}))

    def _record(self, operation: str) -> dict[str, str]:
        return {"operation": self.keys.operation(operation), "operations": self.keys.operations}

    def running_operations(self) -> list[str]:
        """Return the operations that have not ended."""
        found: Any = self.connection.zrangebyscore(self.keys.operations, "+inf", "+inf")
        return to_texts(found)

    def run_id(self) -> str:
        """Return the id of this run of the server: another server, or this one restarted, has other cursors."""
        found: Any = self.connection.info("server")
        return str(found["run_id"])

    # -- what they do to jobs

    def reprioritise(self, moves: Sequence[Move], priority: int, operation: str = "") -> list[str]:
        """Change the priority of waiting jobs. Returns an answer per job: `ok`, `missing`, `foreign`, `list` (its queue has one priority
        only), `altered` (its signature has changed since), a move's own word, `error: ...` (a broken key), or a status that does not wait."""
        answers = list[str]()
        for first in range(0, len(moves), PER_CALL):
            answers += self._told([self._reprioritise(moves[first : first + PER_CALL], priority, operation)])
        return answers

    def do_operation(
        self, operation: str, action: str, jobs: Sequence[str] | Sequence[Move], args: Mapping[str, str], nonce: str
    ) -> list[str]:
        """Apply an operation to jobs in one round trip; each job is compared with the operation's record and counted there. Answers are those
        of the action's own script, and also `counted` (the operation had this job before), `late` (the job entered its state after the
        cut-off), `over` (the operation has ended), or the state that the job has instead."""
        calls = list[_Call]()
        if action in ("cancel", "stop"):
            more = {"dependents": 0} if action == "cancel" else {}
            calls += (
                (self._script(action), {"job": self.keys.job(str(job))}, {"id": job, "operation": operation, **more}, ())
                for job in jobs
            )
            return self._told(calls)
        keep = "1" if action == "delete" and args.get("purge") != "1" and self.may_keep() else ""
        for start in range(0, len(jobs), PER_CALL):
            part: Any = jobs[start : start + PER_CALL]
            given: dict[str, Any] = {"operation": operation, "n_jobs": len(part)}
            if action == "reprioritise":
                calls.append(self._reprioritise(part, int(args["priority"]), operation))
            elif action == "requeue":
                given |= {"nonce": nonce, "keep_place": 0, "quarantined": args.get("quarantined", "0"), "delay_ms": 0}
                given["retry_count"] = defaults.RETRY_COUNT_START
                calls.append((self._script(action), {"queues": self.keys.queues}, given, part))
            elif action == "quarantine":
                calls.append((self._script(action), {}, given | {"reason": args["reason"]}, part))
            else:
                calls.append((self._script("delete"), {}, given | {"keep": keep}, part))
        return self._told(calls)

    def _reprioritise(self, moves: Sequence[Move], priority: int, operation: str) -> _Call:
        rest = [field for fields in zip(*moves, strict=True) for field in fields]
        return self._script("reprioritise"), {}, {"priority": priority, "operation": operation, "n_jobs": len(moves)}, rest

    def _told(self, calls: Sequence[_Call]) -> list[str]:
        """Return the replies of calls that are sent together. If the server forgot a script, that is sent again."""
        if not calls:
            return []
        failpoint(calls[0][0].before)
        replies = batch(
            self.connection,
            lambda pipe: [
                pipe.execute_command("EVALSHA", script.sha, *script.command(keys, args, rest))
                for script, keys, args, rest in calls
            ],
            raise_on_error=False,
        )
        answers = list[str]()
        for (script, keys, args, rest), reply in zip(calls, replies, strict=True):
            if isinstance(reply, NoScriptError):
                reply = script(keys, args, rest)
            elif isinstance(reply, ResponseError):
                raise script.refusal(reply)
            elif isinstance(reply, Exception):
                raise reply
            answers += to_texts(reply) if isinstance(reply, list) else [codec.text(reply)]
        failpoint(calls[0][0].after)
        return answers


class AuditBroker(ScriptHost):
    """Appends entries to the audit; does nothing else with it."""

    def log_audit(self, nonce: str, fields: Mapping[str, str]) -> None:
        """Append an entry. A call with the same `nonce` is a resend and appends nothing."""
        self._script("log_audit")({}, {"nonce": nonce}, [*chain.from_iterable(fields.items())])
