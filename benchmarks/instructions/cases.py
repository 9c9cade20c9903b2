"""Each script at its largest call."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from benchmarks.instructions.case import CASES, Case, case
from benchmarks.instructions.stage import (
    Kind,
    Steps,
    blocked,
    calls_of,
    ended,
    fill,
    heavy,
    holding,
    keyed,
    names,
    open_batch,
    plain,
)
from fusion.enqueue.graph import Graph
from fusion.runtime.consumer import MOST_SLOTS
from fusion.runtime.outbox import _BOUND, _MOST
from fusion.store.layout.records import LogLine, Report, RunLog
from fusion.store.stream.reader import _PER_CALL
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker, Mark
from fusion.store.write.limit_broker import LimitBroker
from fusion.store.write.operation_broker import Move
from tests.events.hands import beat
from tests.kit.hands import LEASE, Hand, expire_lease, may_reap, new, now_ms, outcome
from tests.store.kin_hands import child

KINDS: dict[str, Kind] = {"plain": plain, "keyed": keyed, "heavy": heavy}
MANY = 500


def of_kinds(name: str, *scripts: str, kinds: dict[str, Kind] = KINDS) -> Callable[[Callable[[redis.Redis, Kind], Steps]], None]:
    """Make a case of each kind of job."""

    def note(steps: Callable[[redis.Redis, Kind], Steps]) -> None:
        for word, kind in kinds.items():
            full = f"{name}, {word}"
            CASES[full] = Case(full, frozenset(scripts), lambda conn, kind=kind: steps(conn, kind))

    return note


# -- jobs come and go


@of_kinds("enqueue 500", "enqueue", kinds=KINDS | {"blocked": blocked})
def _enqueue(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    yield
    for nth, call in enumerate(calls_of(map(kind, names(MANY)))):
        broker.enqueue("q", call, f"n{nth}")


@case("enqueue")
def enqueue_30_with_2_parents_each(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    fill(broker, 2)
    jobs = [child(f"c{n}", "j0", "j1", **{**heavy(f"c{n}").fields, "ties": "bkup"}) for n in range(30)]
    yield
    broker.enqueue("q", jobs, "n")


@case("enqueue", "release_graph", "release")
def a_graph_of_300_jobs(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    graph = Graph.of([child(f"c{n}", *([f"c{n - 1}", f"c{n // 2}"] if n > 1 else [])) for n in range(300)])
    yield
    for nth, part in enumerate(graph.parts):
        broker.enqueue_part("q", part, graph.token, nth)
    broker.release_graph(graph.token, "q", graph.jobs[0])
    while broker.release()[1] == 0:
        pass


@case("add_parents")
def add_100_parents(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    parents = fill(broker, 200)
    broker.enqueue_part("q", [child("c", *parents[:100])], "17", 0)
    yield
    broker.add_parents("c", "17", 1, parents[100:])


@case("drop_graph", "release")
def drop_a_graph_of_90_jobs(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    fill(broker, 2)
    for part in range(3):
        jobs = [child(f"c{part * 30 + n}", "j0", "j1", ties="bp", batch="b") for n in range(30)]
        broker.enqueue_part("q", jobs, "17", part)
    yield
    broker.drop_graph("17")
    while broker.release()[1] == 0:
        pass


@of_kinds("children of one parent", "release")
def _release(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    fill(broker, 1)
    for n in range(200):
        job = kind(f"c{n}")
        ties = f"{job.fields.get('ties', '')}p"
        broker.enqueue("q", [child(f"c{n}", "j0", **{**job.fields, "ties": ties})], f"n{n}")
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    yield
    while broker.release()[1] == 0:
        pass


@of_kinds("requeue 500", "requeue")
def _requeue(conn: redis.Redis, kind: Kind) -> Steps:
    jobs = ended(conn, MANY, kind)
    yield
    Broker(conn).requeue(jobs, "n")


@of_kinds("quarantine 500", "quarantine")
def _quarantine(conn: redis.Redis, kind: Kind) -> Steps:
    jobs = ended(conn, MANY, kind)
    yield
    Broker(conn).quarantine(jobs, "why")


@of_kinds("delete 500 that failed", "delete")
def _delete(conn: redis.Redis, kind: Kind) -> Steps:
    jobs = ended(conn, MANY, kind)
    yield
    Broker(conn).delete(jobs)


@of_kinds("delete 500 that wait, into the trash", "delete", kinds=KINDS | {"blocked": blocked})
def _delete_to_trash(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    jobs = fill(broker, MANY, kind)
    yield
    broker.delete_to_trash(jobs)


@of_kinds("restore 500 that waited", "restore")
def _restore(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    jobs = fill(broker, MANY, kind)
    broker.delete_to_trash(jobs)
    yield
    broker.restore(jobs, "n")


@of_kinds("restore 500 that failed", "restore")
def _restore_failed(conn: redis.Redis, kind: Kind) -> Steps:
    jobs = ended(conn, MANY, kind)
    broker = Broker(conn)
    broker.delete_to_trash(jobs)
    yield
    broker.restore(jobs, "n")


@case("empty_trash")
def empty_a_trash_of_1000(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    broker.delete_to_trash(fill(broker, 1000))
    yield
    broker.empty_trash()


@of_kinds("empty a queue of 1000", "empty", kinds=KINDS | {"blocked": blocked})
def _empty(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    fill(broker, 1000, kind)
    yield
    broker.empty("q")


@of_kinds("empty a queue of 1000 into the trash", "empty")
def _empty_to_trash(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    fill(broker, 1000, kind)
    yield
    broker.empty_to_trash("q")


@of_kinds("reprioritise 500", "reprioritise")
def _reprioritise(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    jobs = fill(broker, MANY, kind)
    yield
    broker.reprioritise([Move(one) for one in jobs], 2)


@of_kinds("expire 300", "expire", kinds=KINDS | {"blocked": blocked})
def _expire(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    for one in fill(broker, 300, kind):
        conn.hset(f"rq:job:{one}", "expires_at", 1)
        conn.zadd("rq:expiring", {one: 1})
    yield
    broker.expire()


# -- workers


@of_kinds("a full turn", "turn")
def _turn(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    fill(broker, 100, kind)
    hand = Hand(broker, "q")
    held = hand.claim(_MOST if kind is plain else _MOST // _BOUND)
    yield
    hand.turn(*(outcome(one, fields={"result": "1"}) for one in held), slots=[0] * MOST_SLOTS)


@of_kinds("a full turn of jobs that failed", "turn")
def _turn_failed(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    fill(broker, 100, kind)
    hand = Hand(broker, "q")
    held = hand.claim(_MOST // 2 if kind is plain else _MOST // (_BOUND + 1))
    yield
    hand.turn(*(outcome(one, "failed", reason="r", fields={"error_class": "E"}) for one in held), slots=[0] * MOST_SLOTS)


@case("turn")
def a_turn_over_60_queues(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    queues = [f"q{n}" for n in range(60)]
    for queue in queues:
        broker.enqueue(queue, [new(f"{queue}-{n}") for n in range(3)], queue)
    hand = Hand(broker, *queues)
    yield
    hand.claim(32)


@case("follow")
def follow_a_leader_with_50(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    broker.enqueue("q", [new(f"j{n}", func="f", gather="100 0", ties="m") for n in range(200)], "n")
    hand = Hand(broker, "q")
    first = hand.take()
    yield
    broker.follow(hand.name, hand.incarnation, 1, LEASE, first, 50)


@case("extend")
def extend_1000_leases(conn: redis.Redis) -> Steps:
    hand = holding(conn, 1000)
    held = [(one.decode(), exec_id.decode()) for one, exec_id in conn.hgetall(f"rq:worker:{hand.name}:jobs").items()]
    assert len(held) == 1000
    yield
    hand.broker.extend(hand.name, hand.incarnation, held, LEASE, 420, "busy")


@of_kinds("prune a worker with 1000 jobs", "prune")
def _prune(conn: redis.Redis, kind: Kind) -> Steps:
    hand = holding(conn, 1000, kind)
    yield
    hand.broker.prune(LEASE, hand.name)


@case("prune")
def prune_a_worker_with_3000_jobs(conn: redis.Redis) -> Steps:
    hand = holding(conn, 3000)
    yield
    hand.broker.prune(LEASE, hand.name)


@case("prune")
def prune_20_workers_beside_100_gates(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(100):
        broker.set_gate(f"q{n}", {"limit": 9})
    for n in range(40):
        Hand(broker, "q", name=f"host.{n}")
        conn.hset(f"rq:worker:host.{n}", "beat_ms", 1)
    may_reap(conn)
    yield
    broker.prune(LEASE)


@of_kinds("deregister a worker with 1000 jobs", "deregister")
def _deregister(conn: redis.Redis, kind: Kind) -> Steps:
    hand = holding(conn, 1000, kind)
    yield
    hand.broker.deregister(hand.name, hand.incarnation)


@case("deregister")
def deregister_a_worker_with_3000_jobs(conn: redis.Redis) -> Steps:
    hand = holding(conn, 3000)
    yield
    hand.broker.deregister(hand.name, hand.incarnation)


@case("register")
def register_under_the_name_of_one_with_3000_jobs(conn: redis.Redis) -> Steps:
    hand = holding(conn, 3000)
    conn.hset(f"rq:worker:{hand.name}", "beat_ms", 1)
    yield
    hand.broker.register(hand.name, "other", LEASE, 420, {"queues": "q"})


@of_kinds("reap 300 leases", "reap")
def _reap(conn: redis.Redis, kind: Kind) -> Steps:
    hand = holding(conn, 300, kind)
    expire_lease(conn, "q", *(one.decode() for one in conn.zrange("rq:wip:q", 0, -1)))
    may_reap(conn)
    yield
    hand.broker.reap(LEASE, 0)


@case("log_event")
def log_500_lines(conn: redis.Redis) -> Steps:
    fill(Broker(conn), 1)
    yield
    Broker(conn).log_event([LogLine("log", "said" * 50, "j0", age=0.5) for _ in range(500)], "nonce")


@case("report")
def report_how_far_500_jobs_are(conn: redis.Redis) -> Steps:
    hand = holding(conn, 500)
    held = conn.hgetall(f"rq:worker:{hand.name}:jobs")
    reports = [Report(one.decode(), run.decode(), b'{"done":1}', b"5", "1") for one, run in held.items()]
    yield
    hand.broker.report(hand.name, reports)


@case("note_history")
def note_500_fields_of_history(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    hand = Hand(broker, "q")
    yield
    counts = [[(m, f"1:completed:{m}", 1) for m in range(10)] for _ in range(25)]
    most = [(m, what, 1) for m in range(2) for what in ("slowest", "peak")]
    series = {("queue", f"q{n}"): rows for n, rows in enumerate(counts)}
    series |= {("function", f"tasks.f{n}"): [*rows[:6], *most] for n, rows in enumerate(counts)}
    broker.note_history(hand.name, 1, series)


# -- times


@of_kinds("promote 300 that are due", "promote")
def _promote(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    due = now_ms(conn) / 1000 + 60
    jobs = [kind(one) for one in names(300)]
    for job in jobs:
        broker.enqueue("q", [new(job.id, due=due, **job.fields)], job.id)
    conn.zadd("rq:scheduler:scheduled_jobs", {job.id: 1 for job in jobs})
    yield
    broker.promote()


def _many_keys(conn: redis.Redis, keys: int, jobs: int, slots: int) -> Broker:
    """Keys whose pauses are over by the time of the call, each with jobs that wait for it."""
    broker, limits = Broker(conn), LimitBroker(conn)
    for n in range(keys):
        limits.pause_limit(f"k{n}", 3600)
        limits.pin_limit(f"k{n}", slots)
        named = {"ties": "k", "concurrency_key": f"k{n}", "max_concurrent": str(slots)}
        broker.enqueue("q", [new(f"j{n}-{m}", **named) for m in range(jobs)], f"n{n}")
        conn.hset(f"rq:limit:k{n}", "paused", now_ms(conn))
        conn.zadd("rq:limits:due", {f"k{n}": 1})
    time.sleep(0.01)
    return broker


@case("promote")
def the_pauses_of_100_keys_end_at_once(conn: redis.Redis) -> Steps:
    broker = _many_keys(conn, 100, 10, 100)
    yield
    while broker.promote()[1] == 0:
        pass


@case("set_limit")
def a_key_gets_1000_slots(conn: redis.Redis) -> Steps:
    broker, limits = Broker(conn), LimitBroker(conn)
    fill(broker, 1000, blocked)
    yield
    limits.pin_limit("k", 1000)


@case("clean")
def clean_120_keys_with_120_holders(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(120):
        named = {"ties": "k", "concurrency_key": f"k{n}", "max_concurrent": "200"}
        broker.enqueue("q", [new(f"j{n}-{m}", **named) for m in range(120)], f"n{n}")
    yield
    while broker.clean():
        pass


@case("clean")
def clean_100_batches_with_60_open_members(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(100):
        open_batch(broker, f"b{n}")
        broker.enqueue("q", [new(f"j{n}-{m}", ties="b", batch=f"b{n}") for m in range(60)], f"n{n}")
    yield
    while broker.clean():
        pass


@of_kinds("clean 1000 that failed and are over their time", "clean")
def _clean(conn: redis.Redis, kind: Kind) -> Steps:
    jobs = ended(conn, 1000, kind)
    conn.zadd("rq:failed", dict.fromkeys(jobs, 1.5))
    yield
    while Broker(conn).clean():
        pass


@case("clean")
def clean_50_names_with_200_finished_each(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(50):
        queue = f"q{n}"
        broker.enqueue(queue, [new(f"{queue}-{m}") for m in range(40)], queue)
        hand = Hand(broker, queue, name=f"host.{n}")
        held = hand.claim(40)
        hand.turn(*map(outcome, held))
        conn.zadd(f"rq:finished:{queue}", {one.id: 1.5 for one in held})
    yield
    while broker.clean():
        pass


@case("survey", "sample", "resume", "clean")
def look_over_500_queues_with_work(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(500):
        broker.enqueue(f"q{n}", [new(f"j{n}")], f"n{n}")
    broker.suspend()
    yield
    while broker.survey({"?": " ^.$", "q*": " ^q.*$"}, 0):
        pass
    while broker.sample(0.0):
        if conn.hget("rq:history:sample", "cursor") == b"0":
            break
    broker.resume()
    while broker.clean():
        pass


@case("write_logs")
def write_16_full_logs(conn: redis.Redis) -> Steps:
    hand = Hand(Broker(conn), "q")
    fill(hand.broker, 16)
    held = hand.claim(16)
    text = "\n".join(f"{n} {'x' * 70}" for n in range(100))
    yield
    hand.broker.write_logs([RunLog(one.id, one.execution_id, lines=text) for one in held])


@case("hold_probation")
def look_at_100_sets_of_probation(conn: redis.Redis) -> Steps:
    hand = Hand(Broker(conn), "q")
    for n in range(100):
        conn.zadd(f"rq:waits:probation:q{n}", {"j": 1})
    yield
    hand.broker.hold_probation("host", hand.incarnation, 20, [f"probation:q{n}" for n in range(100)])


@case("endpoint_gone")
def an_endpoint_is_gone(conn: redis.Redis) -> Steps:
    yield
    Broker(conn).endpoint_gone("https://x/")


@case("tell_verdict")
def a_verdict_turns(conn: redis.Redis) -> Steps:
    yield
    Broker(conn).tell_verdict("https://x/", "unhealthy", True, "n1", "unhealthy", "{}")


# -- batches


@of_kinds("cancel a batch of 300", "cancel_batch", "tend_batches", kinds={"keyed": keyed, "heavy": heavy, "blocked": blocked})
def _cancel_batch(conn: redis.Redis, kind: Kind) -> Steps:
    broker = Broker(conn)
    fill(broker, 300, kind)
    yield
    broker.cancel_batch("b")
    while broker.tend_batches()[1] == 0:
        pass


@case("tend_batches")
def the_times_of_300_members_begin(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    broker.open_batch("b", "n", 3600, 86400, {"on_complete": "back"})
    for first in range(0, 300, 20):
        broker.enqueue("q", [new(f"j{n}", ties="b", batch="b") for n in range(first, first + 20)], f"n{first}")
    hand = Hand(broker, "q")
    while held := hand.claim(20):
        hand.turn(*map(outcome, held))
    conn.hset("rq:batch:b", "read", 0)
    conn.zadd("rq:batches:due", {"b": 1})
    yield
    while broker.tend_batches()[1] == 0:
        pass


@case("tend_batches")
def forget_100_batches(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    for n in range(100):
        broker.open_batch(f"b{n}", f"n{n}", -1, 0, {})
    yield
    while broker.tend_batches()[1] == 0:
        pass


# -- events


@case("events_read", "events_ack", "events_trim")
def read_and_trim_12000_events(conn: redis.Redis) -> Steps:
    events = EventBroker(conn)
    pipe = conn.pipeline(transaction=False)
    for n in range(12_000):
        pipe.xadd("rq:events", {"event": "queued", "job_id": "j", "queue": "q", "log_tag": "", "epoch": "e", "n": n})
    pipe.execute()
    beat(events, "r", "s")
    yield
    ids = [row.id for row in events.events_read("s", "r", _PER_CALL)[0]]
    events.events_read("s", "r", _PER_CALL, own=True)
    events.events_ack("s", ids[:50], [(one, "why", "{}") for one in ids[50:]], Mark("e", "3", 1))
    while rows := events.events_read("s", "r", _PER_CALL)[0]:
        events.events_ack("s", [row.id for row in rows], [], Mark("e", "3", 1))
    events.events_trim(5)


# -- scripts whose every call is small


#: By script, the name of its call in `tests.store.test_scripts.scenario`. What they do does not grow with anything.
SMALL = (
    "advance_operation", "cancel", "cancel_operation", "close_batch", "cron_due", "cron_fault", "cron_pause", "cron_put", "cron_remove",
    "cron_resume", "cron_retire", "cron_run", "cron_tick", "lease_operation", "lock", "log_audit", "note_copy", "open_batch", "open_operation",
    "pause", "relay_beat", "relay_leave", "release_slot", "reschedule", "ring", "save_meta", "scheduler_beat", "scheduler_leave", "schema_raise",
    "set_gate", "stop", "unlock", "unpause",
)  # fmt: skip


def _small(script: str) -> Callable[[redis.Redis], Steps]:
    def steps(conn: redis.Redis) -> Steps:
        from fusion.store.write.cron_broker import CronBroker
        from tests.store.test_scripts import scenario

        calls = scenario(conn) | {"cron_due": CronBroker(conn).cron_due}
        yield
        calls[script]()

    return steps


for _script in SMALL:
    CASES[f"a call of {_script}"] = Case(f"a call of {_script}", frozenset({_script}), _small(_script))
