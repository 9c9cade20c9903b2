"""Two schedulers, one cron entry, and a walk through what may come between their look and their decision."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, ClassVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fusion.store.layout.records import Commit, NewJob, StoredEntry, Tick, TurnRequest
from fusion.store.write.cron_broker import tick_name
from tests.faults.model.scripts import Line, Mistake, Snapshot, broker_of, clock_at, cron_broker_of
from tests.faults.model.state import START, TERMINAL
from tests.kit.hands import DATA

ENTRY, QUEUE, EVERY = "e", "a", 60
_HOUR = 3_600_000
_JOB = NewJob("", 1, {"data": DATA, "result_ttl": 500})

_SETS = {
    "queued": f"rq:queue:{QUEUE}",
    "scheduled": "rq:scheduler:scheduled_jobs",
    "started": f"rq:wip:{QUEUE}",
    "finished": f"rq:finished:{QUEUE}",
}

_deciding = (st.sampled_from("ST"), st.sampled_from([1, 3]), st.sampled_from([0, 0, 90]))
_WEIGHTED: tuple[tuple[int, str, st.SearchStrategy[Any]], ...] = (
    (12, "go_on", st.tuples(st.sampled_from([61_000, 61_000, 61_000, 200_000, _HOUR, -90_000]), *_deciding)),
    (3, "pass_time", st.sampled_from([20_000, 61_000, 3 * 86_400_000, -20_000, -90_000, -_HOUR])),
    (4, "look", st.sampled_from("ST")),
    (5, "decide", st.tuples(*_deciding)),
    (6, "resend", st.integers(0, 6)),
    (3, "promote", st.none()),
    (5, "work", st.sampled_from([True, True, False])),
    (2, "run_by_hand", st.none()),
    (1, "pause", st.none()),
    (2, "resume", st.none()),
    (2, "change", st.integers(0, 1)),
    (1, "remove", st.booleans()),
    (1, "delete", st.integers(0, 5)),
    (1, "clean", st.none()),
    (1, "forget_scripts", st.none()),
)
_STEPS = st.sampled_from([i for i, (weight, _, _) in enumerate(_WEIGHTED) for _ in range(weight)]).flatmap(
    lambda i: st.tuples(st.just(_WEIGHTED[i][1]), _WEIGHTED[i][2])
)


class CronMachine(RuleBasedStateMachine):
    """What is asserted: one job per tick ever made, a mark that knows it, and an answer that says what was done."""

    conn: ClassVar[redis.Redis]
    overlap: ClassVar[str] = "allow"
    mistakes: ClassVar[tuple[Mistake, ...]] = ()
    _tools: ClassVar[dict[Any, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        key = (id(self.conn), self.mistakes)
        if key not in self._tools:
            line = Line.like(self.conn)
            self._tools.clear()
            self._tools[key] = line, cron_broker_of(line, self.mistakes), broker_of(line, self.mistakes)
        self._line, self._cron, self._broker = self._tools[key]
        self._line.begin(("FLUSHDB",), clock_at(START))
        self._now, self._token, self._nonces = START, 0, 0
        self._made: set[int] = set()
        self._answered: tuple[str, tuple[str, int, int]] | None = None  # the last tick's nonce, and what it was told
        self._last = self._manual = ""
        self._calls: list[tuple[StoredEntry, Tick, str]] = []
        self._read: dict[str, tuple[StoredEntry, int] | None] = {"S": None, "T": None}
        assert self._broker.register("w", "w1", 3600, 420, {})
        self._seen: Snapshot = self._line.look()
        self.change(0)

    @rule(what=_STEPS)
    def step(self, what: tuple[str, Any]) -> None:
        name, argument = what
        method = getattr(self, name)
        method() if argument is None else method(*argument) if isinstance(argument, tuple) else method(argument)

    # -- schedulers

    def look(self, scheduler: str) -> None:
        found = self._cron.cron_due()
        assert not self._looked()
        if found.entries:
            self._read[scheduler] = found.entries[0], int(found.now)

    def decide(self, scheduler: str, keep: int, delay: int) -> None:
        """By what it read, however long ago: the last ticks up to then, as many as it is to make up."""
        read = self._read[scheduler]
        if read is None or not read[0].mark:
            return
        stored, now = read
        mark = int(float(stored.mark))
        ticks = range(mark // EVERY * EVERY + EVERY, now + 1, EVERY)
        if ticks:
            runs, upto = tuple((tick, float(delay)) for tick in ticks[-keep:]), ticks[-1]
            self._nonces += 1
            self._calls.append((stored, Tick(upto, runs, upto + EVERY, max(0, len(ticks) - keep)), f"n{self._nonces}"))
            self._tick(*self._calls[-1])

    def go_on(self, ms: int, scheduler: str, keep: int, delay: int) -> None:
        """Time passes, and one of them does its work."""
        self.pass_time(ms)
        self.look(scheduler)
        self.decide(scheduler, keep, delay)

    def resend(self, back: int) -> None:
        if self._calls:
            self._tick(*self._calls[-1 - back % len(self._calls)])

    def _tick(self, stored: StoredEntry, tick: Tick, nonce: str) -> None:
        wanted, marked, made = self._expected(stored, tick, nonce)
        found = self._cron.cron_tick(stored, tick, _JOB, QUEUE, nonce, overlap=self.overlap)
        assert self._looked() == made
        assert found == wanted, f"answered {found}, should be {wanted}"
        assert self._mark() == marked, f"the mark is {self._mark()}, should be {marked}"
        if found[0] == "ok":
            self._answered = nonce, found
            self._last = _id(made[-1]) if made else self._last

    def _expected(self, stored: StoredEntry, tick: Tick, nonce: str) -> tuple[tuple[str, int, int], float | None, list[int]]:
        """The answer, the mark after it, and the ticks that get a job."""
        entry = self._seen.keys.get(f"rq:cron:entry:{ENTRY}")
        mark = self._mark()
        if entry and self._answered and self._answered[0] == nonce:
            return self._answered[1], mark, []
        if not entry or entry["rev"] != stored.rev or "paused" in entry or mark != float(stored.mark):
            return ("stale", 0, 0), mark, []
        if tick.upto > self._now // 1000:
            return ("early", 0, 0), mark, []
        made: list[int] = []
        skipped = 0
        for at, _ in tick.runs:
            if f"rq:job:{_id(at)}" in self._seen.keys:
                continue
            if self.overlap == "skip" and (made or self._lives(self._last) or self._lives(self._manual)):
                skipped += 1
            else:
                made.append(at)
        return ("ok", len(made), skipped), float(tick.upto), made

    def _lives(self, job_id: str) -> bool:
        job = self._seen.keys.get(f"rq:job:{job_id}")
        return bool(job) and job["status"] not in TERMINAL

    # -- what comes between

    def pass_time(self, ms: int) -> None:
        self._now += ms
        self._line.before.append(clock_at(self._now))

    def promote(self) -> None:
        self._broker.promote()
        assert not self._looked()

    def work(self, ends: bool) -> None:
        """A worker takes a job, and ends it or is still at it."""
        self._token += 1
        jobs = self._broker.turn(TurnRequest("w", "w1", self._token, [], (QUEUE,), (0,), 3600, 420)).jobs
        assert not self._looked()
        if jobs and ends:
            self._token += 1
            told = [Commit("finished", job.id, job.execution_id) for job in jobs]
            self._broker.turn(TurnRequest("w", "w1", self._token, told, (), (), 3600, 420))
            assert not self._looked()

    def run_by_hand(self) -> None:
        entry = self._seen.keys.get(f"rq:cron:entry:{ENTRY}")
        busy = self.overlap == "skip" and (self._lives(self._last) or self._lives(self._manual))
        status, job_id = self._cron.cron_run(
            ENTRY, entry["rev"] if entry else "", _JOB, QUEUE, self._nonce(), overlap=self.overlap
        )
        assert not self._looked()
        assert status == ("missing" if not entry else "overlap" if busy else "ok")
        self._manual = job_id if status == "ok" else self._manual

    def pause(self) -> None:
        self._cron.cron_pause(ENTRY)
        assert not self._looked()

    def resume(self) -> None:
        resumed = self._cron.cron_resume(ENTRY) == "ok"
        assert not self._looked()
        if resumed:
            assert self._mark() == self._now // 1000
            # the way out of a mark in the future: what such a clock made may be made again, once its jobs are gone
            self._made = {tick for tick in self._made if tick <= self._now // 1000}

    def change(self, number: int) -> None:
        """Another version of the entry; also the first one."""
        before = self._mark()
        self._cron.cron_put(ENTRY, f'{{"every":{EVERY},"v":{number}}}', "{}", f"rev{number}")
        assert not self._looked()
        after = self._mark()
        assert after is not None and (before is None or after >= before), "an entry that changes runs nothing again"

    def remove(self, for_good: bool) -> None:
        self._cron.cron_remove(ENTRY)
        assert not self._looked()
        self._last = self._manual = ""
        self._answered = None
        if not for_good:
            self.change(0)

    def delete(self, number: int) -> None:
        there = sorted(key.removeprefix("rq:job:") for key in self._seen.keys if key.startswith("rq:job:"))
        if there:
            self._broker.delete([there[number % len(there)]])
            assert not self._looked()

    def clean(self) -> None:
        self._broker.clean()
        assert not self._looked()

    def forget_scripts(self) -> None:
        self._line.script_flush()

    # -- what must hold

    def _nonce(self) -> str:
        self._nonces += 1
        return f"n{self._nonces}"

    def _mark(self) -> float | None:
        found: float | None = self._seen.keys.get("rq:cron:marks", {}).get(ENTRY)
        return found

    def _looked(self) -> list[int]:
        """The ticks that got a job in the last call: none of them had one before, whatever happened to that."""
        self._seen = self._line.look()
        for key, job in self._seen.keys.items():
            if key.startswith("rq:job:"):
                where = [status for status, name in _SETS.items() if key.removeprefix("rq:job:") in self._seen.keys.get(name, ())]
                assert where == [job["status"]], f"{key} is {job['status']} and in {where}"
        made = []
        for event in self._seen.events:
            name = event["job_id"].removeprefix(f"cron-{ENTRY}-")
            if event["event"] in ("queued", "scheduled") and "reason" not in event and not name.startswith("manual"):
                made.append(int(datetime.strptime(name, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()))
        again = self._made.intersection(made)
        assert not again and len(set(made)) == len(made), f"a second job for {[tick_name(tick) for tick in again]}"
        self._made |= set(made)
        return made


def _id(tick: int) -> str:
    return f"cron-{ENTRY}-{tick_name(tick)}"
