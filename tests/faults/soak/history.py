"""Every write that ever reached Redis, read from its AOF: the one record of a run that no code of Fusion has written.

Replayed command by command, so that what must hold is checked after each transaction of the run, not only at its end:

- a job is in exactly one state's set, and its hash says the same;
- it goes from state to state only as `docs/lifecycle.md` has it: claimed when it waited, ended by whoever holds it, once;
- what the lifetime counters say came in and did not go out is there;
- of no concurrency key more jobs have a slot than its limit says, nobody both has one and waits, nobody waits while one is free or for a worse one;
- of the jobs with one unique key one is there up to the point that they name, and nobody comes inside the window behind it;
- a job that waits for others is claimed once all of them have ended, and those have finished that it does not do without;
- what follows a batch waits until all of its members have ended, and if it is to follow a success have finished;
- of the ticks of an entry whose overlap is to queue one is under way, and one waits for it;
- who is wanted no more while it runs is not given back, retried or lost: it ends so, unless its own run finishes or fails;
- an execution is held by one job at a time, and its outcome is taken only while the job is its own: the tasks' results and errors name theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.soak.sharing import Behind
from tests.faults.soak.slots import KeySlots
from tests.faults.soak.uniques import UniqueKeys

_JOB = re.compile(rb"rq:job:([A-Za-z0-9_-]+)\Z")
_SETS = re.compile(
    rb"rq:(?:(wip|finished|canceled|stopped|deferred|blocked):.+|(scheduler:scheduled_jobs)|queue:(failed)|(queue):.+)\Z"
)
_STATUS = {"wip": "started", "scheduler:scheduled_jobs": "scheduled", "queue": "queued"}
#: The outcome of an execution that another job in its process has ended.
_BESIDE = ("which of its jobs did that nobody knows", "killed for another job in it", "the call that it shared ")
#: Losses of a job after which the next is to be its own doing.
_ANSWERS_ALONE = 2
_RUN = re.compile(r"run=([^\s'\"\\]+)")
#: From -> to; started comes only by a claim, which brings an execution. Blocked are those on probation, and those over the limit of their
#: key: every task of the soak is there. One on probation that loses its slot to a better one waits for another.
_LEGAL = {
    "": {"queued", "scheduled", "deferred"},
    "deferred": {"queued", "scheduled", "failed", "canceled", "stopped"},
    "scheduled": {"queued", "canceled", "stopped"},
    "queued": {"started", "blocked", "canceled", "stopped"},
    "blocked": {"blocked", "started", "queued", "canceled", "stopped"},
    "started": {"finished", "failed", "scheduled", "queued", "canceled", "stopped"},
}
_ENDED = {"finished", "failed", "canceled", "stopped"}
_HARMLESS = {b"PEXPIREAT", b"PEXPIRE", b"EXPIRE", b"PERSIST", b"HINCRBY", b"HSETNX", b"HDEL"}


def commands(path: Path) -> Iterator[list[bytes]]:
    """The commands of an AOF, as far as they are whole."""
    data, at = path.read_bytes(), 0
    if data.startswith(b"REDIS"):
        raise ValueError(f"{path} begins with a dump: it has been rewritten, so it is no history")
    while at < len(data):
        end = data.find(b"\r\n", at)
        if data[at : at + 1] == b"#":  # a note of the time
            at = end + 2
            continue
        if end < 0:
            return
        count, at, found = int(data[at + 1 : end]), end + 2, []
        for _ in range(count):
            end = data.find(b"\r\n", at)
            if end < 0:
                return
            start = end + 2
            at = start + int(data[at + 1 : end]) + 2
            found.append(data[start : at - 2])
        if at > len(data):
            return
        yield found


def transactions(path: Path) -> Iterator[list[list[bytes]]]:
    """What was done as one: a script's writes."""
    open_one: list[list[bytes]] | None = None
    for command in commands(path):
        verb = command[0].upper()
        if verb == b"MULTI":
            open_one = []
        elif verb == b"EXEC":
            if open_one:
                yield open_one
            open_one = None
        elif open_one is not None:
            open_one.append(command)
        else:
            yield [command]


@dataclass
class Life:
    """A job, as far as the file has been read. `ends`: (execution, how it ended) of all claims, in order; `error`: why the last did.
    `wish`: of people, while it runs; `cursor`: where another run would go on; `parents`: ids, with a sign in front for those that need not finish;
    `batch`: of which it is a member, or, with `batch_as`, which it follows; `suspect`: it may have taken down what it shared with others;
    `promised`: the call that brings it has not come to its end; `dropped`: that call was given up, and nobody was told that it is accepted."""

    status: str = ""
    holder: str = ""
    reason: str = ""
    error: str = ""
    wish: str = ""
    cursor: int = 0
    parents: tuple[str, ...] = ()
    batch: str = ""
    batch_as: str = ""
    suspect: bool = False
    promised: bool = False
    dropped: bool = False
    lost: int = 0
    places: set[str] = field(default_factory=set)
    ends: list[tuple[str, str]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def count(self, *outcomes: str) -> int:
        return sum(outcome in outcomes for _, outcome in self.ends)


class _States(Mapping[str, str]):
    """The status of each job."""

    def __init__(self, jobs: dict[str, Life]) -> None:
        self._jobs = jobs

    def __getitem__(self, job_id: str) -> str:
        return self._jobs[job_id].status

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


@dataclass(frozen=True)
class Event:
    number: int
    event: str
    job_id: str
    worker: str
    at: float


class History:
    """`wrong`: what was against the rules, with the job's id in front."""

    def __init__(self, path: Path) -> None:
        self.jobs: dict[str, Life] = {}
        self.events: list[Event] = []
        self.wrong: list[str] = []
        self.transactions = self.claims = self.reclaims = 0
        #: Jobs that are there: by their hashes, and by the counters, None before one was seen.
        self._live = 0
        self._counted_live: int | None = None
        self._members: dict[str, list[str]] = {}
        self._claimed: dict[str, str] = {}
        self.slots, self.uniques, self.behind = KeySlots(), UniqueKeys(), Behind()
        #: Executions of jobs that are to share nothing with others.
        self.alone: set[str] = set()
        #: Of each execution the cursor that it was given.
        self.cursor_at: dict[str, int] = {}
        #: Executions whose loss counted against their job, and those of which it did not: they were claimed ahead and had not begun.
        self.counted: set[str] = set()
        self.let_off: set[str] = set()
        #: Executions in processes that died of, or were killed for, one of several jobs; and those jobs.
        self.beside: set[str] = set()
        self.jobs_beside: set[str] = set()
        self.told_begun: set[str] = set()
        for transaction in transactions(path):
            self.transactions += 1
            self._settle({job_id for command in transaction for job_id in self._take(command)})
            self._compare_counters()
            states = _States(self.jobs)
            self.wrong += [*self.slots.settle(states), *self.uniques.settle(states), *self.behind.settle(states)]

    def _compare_counters(self) -> None:
        if self._counted_live is not None and self._counted_live != self._live:
            self.wrong.append(f"counters: after transaction {self.transactions} {self._counted_live} are there, not {self._live}")
            self._counted_live = self._live  # each mistake is reported once

    def _take(self, command: list[bytes]) -> Iterable[str]:
        """Follow one command; the jobs it was about."""
        verb, key = command[0].upper(), command[1] if len(command) > 1 else b""
        if verb == b"XADD" and key == b"rq:events":
            self._note_event(command)
        elif verb == b"HINCRBY" and key.startswith(b"rq:totals:"):
            way = 1 if command[2].startswith((b"enqueued", b"requeued")) else -1
            self._counted_live = (self._counted_live or 0) + way * int(command[3])
        elif verb in (b"DEL", b"UNLINK"):
            for one in command[1:]:
                self._tell(verb, one, [])
            return [self._forget(match[1].decode()) for one in command[1:] if (match := _JOB.match(one))]
        elif match := _JOB.match(key):
            return self._write(verb, match[1].decode(), command[2:])
        elif match := _SETS.match(key):
            name = next(filter(None, match.groups())).decode()
            return self._move(verb, _STATUS.get(name, name), command[2:])
        else:
            self._tell(verb, key, command[2:])
        return ()

    def _tell(self, verb: bytes, key: bytes, rest: list[bytes]) -> None:
        self.slots.take(verb, key, rest)
        self.uniques.take(verb, key, rest)

    def _write(self, verb: bytes, job_id: str, rest: list[bytes]) -> list[str]:
        life = self.jobs.setdefault(job_id, Life())
        if verb in (b"HSET", b"HMSET"):
            fields = {rest[i]: rest[i + 1].decode("utf-8", "replace") for i in range(0, len(rest), 2)}
            life.reason = fields.get(b"reason", life.reason)
            if b"begun" in fields:
                self.told_begun.add(fields[b"begun"])
            self.uniques.note(job_id, fields)
            if b"batch" in fields:
                life.batch, life.batch_as = fields[b"batch"], fields.get(b"batch_as", "")
                if not life.batch_as:
                    self._members.setdefault(life.batch, []).append(job_id)
            if b"parents" in fields:
                life.parents = tuple(json.loads(fields[b"parents"]))
            if b"cursor" in fields:
                life.cursor, life.lost = int(fields[b"cursor"]), 0  # it got somewhere
            life.promised = life.promised or b"graph" in fields
            if b"status" in fields:
                self._step(job_id, life, fields)
                self.behind.note(job_id)
            life.lost = int(fields.get(b"lost", life.lost) or 0)
            life.wish = fields.get(b"cancel", life.wish)
            life.suspect = fields.get(b"suspect", "1" if life.suspect else "") == "1"
        elif verb == b"HDEL" and b"graph" in rest:
            life.promised = False
        elif verb == b"HDEL" and (b"cancel" in rest or b"suspect" in rest):
            life.wish = "" if b"cancel" in rest else life.wish
            life.suspect = life.suspect and b"suspect" not in rest
        elif verb not in _HARMLESS:
            self.wrong.append(f"{job_id}: unknown write {verb!r}")
        return [job_id]

    def _move(self, verb: bytes, status: str, rest: list[bytes]) -> list[str]:
        if verb == b"ZADD":
            only = rest[0] == b"XX"  # of one that is there
            ids = [member.decode() for member in rest[1 + only :: 2]]
            for job_id in ids:
                if not only:
                    self.jobs.setdefault(job_id, Life()).places.add(status)
        elif verb == b"ZREM":
            ids = [member.decode() for member in rest]
            for job_id in ids:
                self.jobs.setdefault(job_id, Life()).places.discard(status)
        else:
            raise ValueError(f"{verb!r} on the set of {status} jobs: this reader does not know it")
        return ids

    def _forget(self, job_id: str) -> str:
        life = self.jobs.get(job_id, Life())
        self._live -= life.status != "" and life.status not in _ENDED
        if life.promised and life.status == "deferred":
            life.dropped = True
            life.steps.append("deferred -> given up with the call that brought it")
        else:
            self.wrong.append(f"{job_id}: deleted")
        life.status, life.promised = "", False
        return job_id

    # -- the rules

    def _step(self, job_id: str, life: Life, fields: dict[bytes, str]) -> None:
        was, status = life.status, fields[b"status"]
        execution = fields.get(b"execution_id", "")
        life.dropped = False
        life.steps.append(f"{was or '-'} -> {status} {execution} {fields.get(b'reason', '')}".rstrip())
        if status not in _LEGAL.get(was, ()):
            self.wrong.append(f"{job_id}: went from {was or 'nowhere'} to {status}")
        if was == "started":
            line = _last_line(fields)
            life.ends.append((life.holder, _outcome(status, line)))
            life.error = str(line.get("error", ""))
            self._check_author(job_id, life.holder, fields)
            if life.wish and not _obeys(life.wish, status, life.ends[-1][1]):
                self.wrong.append(f"{job_id}: people said {life.wish!r} while it ran, and it is {status} ({life.ends[-1][1]})")
            if life.ends[-1][1] == "lost":
                self._note_loss(job_id, life, fields)
        if status == "started":
            self.claims += 1
            self.cursor_at[execution] = life.cursor
            if life.suspect or life.lost >= _ANSWERS_ALONE:
                self.alone.add(execution)
            self._check_parents(job_id, life)
            self._check_claim(job_id, execution)
        if was == "deferred" and status == "queued" and life.batch_as:
            self._check_batch(job_id, life)
        self._live += (status not in _ENDED) - (was != "" and was not in _ENDED)
        life.status, life.holder = status, execution if status == "started" else life.holder

    def _check_claim(self, job_id: str, execution: str) -> None:
        """A worker that never got the answer to a claim and was given up meanwhile asks again under the same token: what it gets then has
        the execution of what it lost. That no execution is run twice is shown by the witnesses."""
        before = self._claimed.get(execution)
        if before is not None:
            self.reclaims += 1
        if not execution or (before is not None and (execution, "lost") not in self.jobs[before].ends):
            self.wrong.append(f"{job_id}: claimed as {execution or 'no execution'}, which {before} is or was")
        self._claimed[execution] = job_id

    def _check_parents(self, job_id: str, life: Life) -> None:
        for member in life.parents:
            parent = self.jobs.get(member.lstrip("?~"), Life())
            if parent.status not in (_ENDED if member.startswith("?") else {"finished"}):
                self.wrong.append(f"{job_id}: claimed while its parent {member} was {parent.status or 'not there'}")

    def _check_batch(self, job_id: str, life: Life) -> None:
        """Members of batches inside it are not looked at: their ends are those of theirs."""
        allowed = _ENDED if life.batch_as == "complete" else {"finished"}
        if early := [member for member in self._members.get(life.batch, ()) if self.jobs[member].status not in allowed]:
            self.wrong.append(f"{job_id}: follows its batch, and {early} are {[self.jobs[one].status for one in early]}")

    def _note_loss(self, job_id: str, life: Life, fields: dict[bytes, str]) -> None:
        counts = int(fields.get(b"lost", 0)) - life.lost
        if any(words in life.error for words in _BESIDE):  # the reason of one that was called off says that
            self.beside.add(life.holder)
            self.jobs_beside.add(job_id)
            if counts:
                self.wrong.append(f"{job_id}: the loss of {life.holder}, which may be another's doing, counted as {counts}")
            return
        (self.counted if counts else self.let_off).add(life.holder)
        if counts != 1 and (counts or not life.holder.endswith("a") or life.holder in self.told_begun):
            self.wrong.append(f"{job_id}: the loss of {life.holder} counted as {counts}")

    @property
    def ahead(self) -> set[str]:
        """Executions that were claimed to wait behind another."""
        return {execution for execution in self._claimed if execution.endswith("a")}

    def holder_of(self, execution: str) -> str:
        """The job that was claimed so."""
        return self._claimed[execution]

    def _check_author(self, job_id: str, holder: str, fields: dict[bytes, str]) -> None:
        """Whose outcome this is, by the task's own words."""
        said = _RUN.search(fields.get(b"reason", ""))
        author = json.loads(fields[b"result"]) if b"result" in fields else said[1] if said else holder
        if author != holder:
            self.wrong.append(f"{job_id}: {holder} held it when an outcome of {author} was taken")

    def _settle(self, touched: set[str]) -> None:
        for job_id in touched:
            life = self.jobs[job_id]
            if life.places != ({life.status} if not life.dropped else set()):
                self.wrong.append(
                    f"{job_id}: after transaction {self.transactions} its hash says {life.status or 'nothing'}, "
                    f"and it is in {sorted(life.places) or 'no set'}"
                )

    def _note_event(self, command: list[bytes]) -> None:
        at = next(i for i, part in enumerate(command) if part == b"event")
        fields = dict(zip(command[at::2], (part.decode("utf-8", "replace") for part in command[at + 1 :: 2]), strict=False))
        self.events.append(
            Event(
                int(fields[b"n"]), fields[b"event"], fields[b"job_id"], fields.get(b"worker", ""), int(command[at - 1].split(b"-")[0]) / 1000
            )
        )  # fmt: skip


def _obeys(wish: str, status: str, outcome: str) -> bool:
    return status == ("stopped" if wish == "stop" else "canceled") or outcome in ("finished", "failed")


def _last_line(fields: dict[bytes, str]) -> dict[str, object]:
    """Of the history that is written with a status."""
    lines = fields.get(b"history", "").splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


def _outcome(status: str, line: dict[str, object]) -> str:
    """finished; or what the line of the history says: failed, retry, lost, released."""
    return status if status == "finished" else str(line.get("outcome", "held"))


def aof_of(home: Path) -> Path:
    """The file that is appended to: of one part or of several."""
    found = [*home.glob("appendonlydir/*.incr.aof"), *home.glob("appendonly.aof")]
    if len(found) != 1:
        raise ValueError(f"{len(found)} AOFs in {home}: it has been rewritten, so there is no whole history")
    return found[0]
