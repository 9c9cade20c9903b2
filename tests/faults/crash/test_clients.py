"""SIGKILL of a producer or a command before and after each script that it calls: then the same once more, and all is as if it was done once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from _pytest.mark.structures import ParameterSet

from fusion.cron.scheduler import Scheduler
from fusion.store.layout import schema
from fusion.store.layout.records import Claimed
from fusion.store.read.audit_inspector import NO_ANSWER, AuditInspector
from fusion.store.write.broker import Broker
from tests.faults.crash.zygote import Zygote
from tests.faults.rig.conservation import check_ended, leftovers, memberships
from tests.kit.hands import Hand, events_of, everything, fields_of, may_reap, new, outcome, promote_all, status_of
from tests.kit.length import gate_case
from tests.kit.promises import claim
from tests.store.batch_hands import add, batch_faults, batch_of, begin
from tests.store.kin_hands import child, settle
from tests.store.limits_hands import give

NOOP = "tests.jobs.basic.noop"
HOUR = 3600.0


class World:
    """Three jobs a, b, c of the queue c, as an operation finds them, and a worker's hands that end them."""

    def __init__(self, conn: redis.Redis) -> None:
        self.conn, self.broker = conn, Broker(conn)
        self.hand = Hand(self.broker, "c")
        self.running: Claimed | None = None
        may_reap(conn)

    def nothing(self) -> None:
        return None

    def waiting(self) -> None:
        self.broker.enqueue("c", [new(job) for job in "abc"], "n")

    def scheduled(self) -> None:
        self.broker.enqueue("c", [new(job, delay=HOUR) for job in "abc"], "n")

    def failed(self) -> None:
        self.waiting()
        for claimed in self.hand.claim(3):
            assert (
                self.hand.tell(claimed, "failed", reason="builtins.ValueError: no", fields={"exc_info": "ValueError: no"}) == "ok"
            )

    def deleted(self) -> None:
        self.waiting()
        self.broker.delete_to_trash(["a", "b", "c"])

    def paused(self) -> None:
        self.broker.pause("c")
        self.waiting()

    def nearly_full(self) -> None:
        """There is room for one."""
        self.broker.set_gate("c", {"max_length": 1})

    def said_before(self) -> None:
        """A setting bounded the queue, and one value is a person's."""
        self.waiting()
        self.broker.set_gate("c", {"limit": 8, "max_length": 9, "max_wait": 5}, of_setting=True)
        self.broker.set_gate("c", {"max_wait": 7})

    def suspended(self) -> None:
        self.broker.suspend()
        self.waiting()

    def entry(self) -> None:
        Scheduler(self.conn).every(3600, NOOP, id="e", queue="c")

    def paused_entry(self) -> None:
        self.entry()
        Scheduler(self.conn).pause("e")

    def operation(self) -> None:
        """On the jobs, which wait."""
        self.waiting()
        self.broker.open_operation("o", {"action": "reprioritise", "states": "queued"})

    def batch(self) -> None:
        begin(self.broker, "b")
        add(self.broker, "b", *"abc", queue="c")

    def abandoned(self) -> None:
        self.batch()
        self.conn.hset("rq:batch:b", "open_until", 1)
        self.conn.zadd("rq:batches:due", {"b": 1})

    def to_be_released(self) -> None:
        self.broker.enqueue("c", [new("a", ties="h")], "n")
        self.conn.zadd("rq:releasing", {"u a": 1})

    def graph(self) -> None:
        """Of which the last job has not come."""
        self.broker.enqueue_part("c", [new("a", ties="p"), child("b", "a"), new("c", ties="p")], "17", 0)

    def older_layout(self) -> None:
        self.conn.hset("rq:schema", "version", 0)

    def blocked(self) -> None:
        give(self.broker, "c", *"abc")

    def limited(self) -> None:
        self.blocked()
        self.running = self.hand.take()

    def runs(self) -> None:
        self.waiting()
        self.running = self.hand.take()

    def locks(self) -> None:
        self.runs()
        assert self.running is not None
        self.broker.lock("x", "a", self.running.execution_id, "c")

    def states(self) -> list[str | None]:
        return [status_of(self.conn, job) for job in "abc"]

    def ended(self) -> None:
        """All that there is gets its time."""
        self.broker.unpause("c")
        promote_all(self.broker, self.conn)
        if self.running is not None:
            self.hand.tell(self.running)
        for token in self.conn.zrange("rq:graphs", 0, -1):
            self.broker.release_graph(token.decode(), "c", new("a"))
        settle(self.broker)
        while jobs := self.hand.claim(10):
            self.hand.turn(*(outcome(claimed) for claimed in jobs))
            settle(self.broker)


def _in_batch(**fields: str) -> Callable[[World], bool]:
    return lambda world: fields.items() <= batch_of(world.conn, "b").items() and batch_faults(world.conn) == []


_LIMITS = "from fusion.store.access import limit_broker_of; limits = lambda: limit_broker_of(Queue().connection)"


_BROKER = "from fusion.store.access import broker_of; broker_of(Queue('c').connection)"


_OF_RUN = "'x', 'a', Queue().connection.hget('rq:job:a', 'execution_id').decode(), 'c'"


def _code(text: str) -> tuple[str, ...]:
    return (
        "-c",
        f"from fusion import *; from fusion.cron.scheduler import Scheduler; from fusion.log import Log; {_LIMITS}; {text}",
    )


def _command(*words: str) -> tuple[str, ...]:
    return ("run_worker.py", *words)


@dataclass(frozen=True)
class Operation:
    """`done` of the world after all: whether it was done once."""

    script: str
    given: Callable[[World], None]
    program: tuple[str, ...]
    done: Callable[[World], bool]


def _has(field: str, value: str, *jobs: str) -> Callable[[World], bool]:
    return lambda world: all(fields_of(world.conn, job).get(field) == value for job in jobs or "abc")


def _is(*states: str | None) -> Callable[[World], bool]:
    return lambda world: world.states() == list(states)


def _came_once(world: World) -> bool:
    return [event["event"] for event in events_of(world.conn, "a")] == ["queued"] and world.states()[0] == "queued"


def _was_asked(world: World) -> bool:
    """Whoever was killed has left word of what they wanted."""
    return AuditInspector(world.conn).entries()[-1].outcome == NO_ANSWER


def _state(conn: redis.Redis) -> dict[str, Any]:
    """Without what a command says of itself before it begins."""
    found = everything(conn)
    return {key: found[key] for key in found if key != "rq:audit" and not key.startswith("rq:events:said:")}


def _next_look(world: World) -> float | None:
    return world.conn.zscore("rq:cron:due", "e")


def _record(**fields: str) -> Callable[[World], bool]:
    """Of the operation on many jobs that there is."""
    return lambda world: (
        {name.encode(): value.encode() for name, value in fields.items()}.items() <= world.conn.hgetall("rq:operation:o").items()
    )


OPERATIONS = (
    Operation("enqueue", World.nothing, _command("enqueue", NOOP, "-q", "c", "--job-id", "a"), _came_once),
    Operation("enqueue", World.nearly_full, _command("enqueue", NOOP, "-q", "c", "--job-id", "a"), _came_once),
    Operation("cancel", World.waiting, _command("cancel", "a"), _is("canceled", "queued", "queued")),
    Operation("stop", World.waiting, _code("Job.fetch('a').stop()"), _is("stopped", "queued", "queued")),
    Operation("reschedule", World.scheduled, _command("reschedule", "a", "+2h"), _is(*["scheduled"] * 3)),
    Operation("requeue", World.failed, _command("requeue", "--all"), _has("requeued", "1")),
    Operation("quarantine", World.failed, _command("quarantine", "a", "--reason", "why"), _has("quarantined", "why", "a")),
    Operation("delete", World.waiting, _code("Job.fetch('a').delete()"), _is(None, "queued", "queued")),
    Operation("empty", World.waiting, _command("empty", "c", "--yes"), _is(None, None, None)),
    Operation(
        "save_meta", World.waiting, _code("j = Job.fetch('a'); j.meta['x'] = 1; j.save_meta()"), _has("meta", '{"x":1}', "a")
    ),
    Operation(
        "note_copy",
        World.failed,
        _code("from fusion.enqueue.copying import note_copy; note_copy(Job.fetch('a').connection, 'a', 'b')"),
        _has("copied_to", "b", "a"),
    ),
    Operation(
        "log_event",
        World.waiting,
        _code("Log.log('said', job_id='a')"),
        lambda world: any(event.get("message") == "said" for event in events_of(world.conn, "a")),
    ),
    Operation(
        "pause",
        World.waiting,
        _command("pause", "c", "--reason", "why"),
        lambda world: str(world.conn.get("rq:paused:c"), "utf-8").endswith("\nwhy"),
    ),
    Operation(
        "set_gate",
        World.waiting,
        _code("Queue('c').set_max_length(3)"),
        lambda world: world.conn.hgetall("rq:gates") == {b"c": b"max_length=3"},
    ),
    Operation(
        "set_limit",
        World.blocked,
        _code("limits().pin_limit('k', 2)"),
        _is("queued", "queued", "blocked"),
    ),
    Operation(
        "release_slot",
        World.limited,
        _code("limits().release_slot('k', 'a')"),
        _is("started", "queued", "blocked"),
    ),
    Operation(
        "lock",
        World.runs,
        _code(f"{_BROKER}.lock({_OF_RUN})"),
        lambda world: b"/c " in (world.conn.hget("rq:job:a", "locks") or b"") and world.conn.zcard("rq:limits:held:x") == 1,
    ),
    Operation(
        "unlock",
        World.locks,
        _code(f"{_BROKER}.unlock({_OF_RUN})"),
        lambda world: (
            not world.conn.exists("rq:limits:held:x", "rq:limits:locks:x") and not world.conn.hexists("rq:job:a", "locks")
        ),
    ),
    Operation("restore", World.deleted, _command("trash", "restore", "--all"), _is(*["queued"] * 3)),
    Operation("empty_trash", World.deleted, _command("trash", "empty", "--yes"), lambda world: not world.conn.exists("rq:trash")),
    Operation("log_audit", World.waiting, _command("pause", "c"), _was_asked),
    Operation("unpause", World.paused, _command("unpause", "c"), lambda world: not world.conn.exists("rq:paused:c")),
    Operation(
        "set_gate",
        World.waiting,
        _code("from fusion import Queue; Queue('c').set_rate('10/s')"),
        lambda world: world.conn.hget("rq:gates", "c") == b"rate=10/1000/10",
    ),
    Operation("open_batch", World.waiting, _code("Batch(id='b', name='n').open()"), _in_batch(name="n", open="0")),
    Operation(
        "close_batch", World.batch, _code("Batch.fetch('b').close()"), lambda world: "closed_at" in batch_of(world.conn, "b")
    ),
    Operation("cancel_batch", World.batch, _code("Batch.fetch('b').cancel()"), _in_batch(canceled="3", over="1")),
    Operation(
        "tend_batches",
        World.abandoned,
        _code("from fusion.store.access import broker_of; broker_of(Queue('c').connection).tend_batches()"),
        _in_batch(closed_by="open_for", open="3"),
    ),
    Operation(
        "add_parents",
        World.graph,
        _code(f"{_BROKER}.add_parents('b', '17', 1, ['c'])"),
        lambda world: world.conn.smembers("rq:job:b:dependencies") == {b"a", b"c", b"*17"},
    ),
    Operation(
        "release",
        World.to_be_released,
        _code(f"{_BROKER}.release()"),
        lambda world: status_of(world.conn, "a") == "queued" and not world.conn.exists("rq:releasing"),
    ),
    Operation(
        "open_operation",
        World.nothing,
        _code(f"{_BROKER}.open_operation('o', {{'action': 'requeue', 'states': 'failed'}})"),
        _record(status="running", part="0"),
    ),
    Operation(
        "lease_operation", World.operation, _code(f"{_BROKER}.lease_operation('o', 'w', 10)"), _record(carrier="w", part="0")
    ),
    Operation(
        "advance_operation",
        World.operation,
        _code(f"{_BROKER}.advance_operation('o', 0, 's', 'failed', 7, 'r', skipped=2)"),
        _record(part="1", cursor="7", skipped="2"),
    ),
    Operation("cancel_operation", World.operation, _code(f"{_BROKER}.cancel_operation('o')"), _record(status="canceled")),
    Operation(
        "reprioritise",
        World.operation,
        _code(f"{_BROKER}.do_operation('o', 'reprioritise', [(job, '', '') for job in 'abc'], {{'priority': '2'}}, 'n')"),
        lambda world: (
            _record(done="3")(world) and world.conn.hgetall("rq:totals:c") == {b"enqueued:1": b"0", b"enqueued:2": b"3"}
        ),
    ),
    Operation(
        "release_graph",
        World.graph,
        _code(f"from fusion.store.layout.records import NewJob; {_BROKER}.release_graph('17', 'c', NewJob('a', 1, {{}}))"),
        lambda world: not world.conn.exists("rq:graphs"),
    ),
    Operation(
        "drop_graph",
        World.graph,
        _code(f"{_BROKER}.drop_graph('17')"),
        lambda world: not world.conn.exists("rq:graphs"),
    ),
    Operation(
        "set_gate",
        World.said_before,
        _code(
            "from fusion.store.access import broker_of; broker_of(Queue('c').connection).set_gate('c', {'limit': 9}, of_setting=True)"
        ),
        lambda world: world.conn.hget("rq:gates", "c") == b"max_wait=7 limit=9",
    ),
    Operation("resume", World.suspended, _command("resume"), lambda world: not world.conn.exists("rq:suspended")),
    Operation(
        "cron_put",
        World.nothing,
        _code(f"Scheduler().every(3600, '{NOOP}', id='e', queue='c')"),
        lambda world: _next_look(world) not in (None, float("inf")),
    ),
    Operation("cron_pause", World.entry, _command("cron", "pause", "e"), lambda world: _next_look(world) == float("inf")),
    Operation(
        "cron_resume", World.paused_entry, _command("cron", "resume", "e"), lambda world: _next_look(world) != float("inf")
    ),
    Operation("cron_remove", World.entry, _command("cron", "remove", "e", "--yes"), lambda world: _next_look(world) is None),
    Operation(
        "schema_raise",
        World.older_layout,
        _command("schema", "--raise"),
        lambda world: world.conn.hget("rq:schema", "version") == str(schema.VERSION).encode(),
    ),
    # whoever runs an entry by hand twice gets two jobs
    Operation("cron_run", World.entry, _command("cron", "run", "e"), lambda world: 1 <= len(memberships(world.conn)) <= 2),
)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


def _operations() -> Iterator[ParameterSet]:
    """The gate runs the first one of each script."""
    met = set[str]()
    for operation in OPERATIONS:
        yield (pytest.param if operation.script in met else gate_case)(operation, id=operation.script)
        met.add(operation.script)


@claim("P1")
@pytest.mark.parametrize("operation", [*_operations()])
def test_a_caller_may_be_killed_around_any_script(operation: Operation, zygote: Zygote, conn: redis.Redis) -> None:
    world = World(conn)
    operation.given(world)
    script = operation.script
    look = everything if script in ("log_audit", "log_event") else _state
    before = look(conn)

    killed = zygote.run(operation.program, f"{script}.before=kill")
    assert killed.code == -signal.SIGKILL, killed.output
    assert look(conn) == before, "nothing was done yet"
    killed = zygote.run(operation.program, f"{script}.after=kill")
    assert killed.code == -signal.SIGKILL, killed.output
    assert look(conn) != before
    assert operation.done(world), "it was done, though nobody heard of it"

    again = zygote.run(operation.program)
    assert again.code in (0, 1), "done, or it says that it was done already"
    assert operation.done(world), again.output
    world.ended()
    check_ended(conn, memberships(conn))
    assert leftovers(conn) == []


#: Commands that look, by the script that they call.
LOOKS = {"walk_graph": ("job", "graph", "a"), "count_members": ("batch", "graph", "b")}


@pytest.mark.parametrize("script", [gate_case(script, id=script) for script in LOOKS])
def test_who_looks_may_be_killed_and_nothing_changes(script: str, zygote: Zygote, conn: redis.Redis) -> None:
    world = World(conn)
    begin(world.broker, "b")
    for first in range(0, 301, 43):
        add(world.broker, "b", *(f"m{n}" for n in range(first, first + 43)), queue="c")
    world.waiting()
    before = everything(conn)
    for side in ("before", "after"):
        killed = zygote.run(_command(*LOOKS[script]), f"{script}.{side}=kill")
        assert killed.code == -signal.SIGKILL, killed.output
    again = zygote.run(_command(*LOOKS[script]))
    assert again.code == 0, again.output
    assert everything(conn) == before
