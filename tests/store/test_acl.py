"""The rules of docs/operations.md, "Least privilege", against a real server: enough, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from fusion import Batch, NotReplicated, Queue
from fusion.exceptions import QueueFull
from fusion.job import Job
from fusion.store.client.connections import connect
from fusion.store.client.resp import NonBlockingReader
from fusion.store.client.server import read_server
from fusion.store.layout.acl import acl_rules, producer_rules
from fusion.store.layout.records import Room
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.operation_broker import AuditBroker
from tests.kit.hands import Hand, fields_of, new, put
from tests.kit.servers import SpawnedServer
from tests.store.test_resp import replies

ROOT = Path(__file__).resolve().parents[2]
TASK = "tests.jobs.basic.noop"
#: How servers of all versions say it, and their scripts.
REFUSED = r"permissions|NOPERM|can't run this command|can't access|not allowed from script"
Operation = Callable[[redis.Redis], object]


@pytest.fixture(scope="module")
def server(server_binary: object) -> Iterator[SpawnedServer]:
    started = SpawnedServer(server_binary.path, "--save", "")  # type: ignore[attr-defined]
    yield started
    started.close()


def user(server: SpawnedServer, rules: str) -> redis.Redis:
    """Somebody with these rules, on an empty server that knows no script."""
    admin = server.client()
    admin.flushall()
    admin.script_flush()
    admin.execute_command("ACL", "SETUSER", "fusion", "reset", "on", ">pw", *terms(rules))
    admin.close()
    return connect(f"{server.url}?username=fusion&password=pw&db=1")


def terms(rules: str) -> list[str]:
    """As `ACL SETUSER` takes them: a selector in parentheses is one."""
    return re.findall(r"\([^)]*\)|\S+", rules)


def _subscribe(conn: redis.Redis) -> None:
    reader = NonBlockingReader.of(conn)
    try:
        reader.send("SUBSCRIBE", "rq:pubsub:w")
        (answer,) = replies(reader, 1)
        if isinstance(answer, Exception):
            raise answer
    finally:
        reader.close()


def _twice(conn: redis.Redis) -> None:
    put(Broker(conn), "q", "a")
    put(Broker(conn), "q", "b")


def _replicated(conn: redis.Redis) -> None:
    try:
        Queue("q", conn).enqueue(TASK, durability="replicated", replicas=1, replicas_timeout=0.01)
    except NotReplicated as told:
        if told.__cause__:
            raise told.__cause__ from None


def _extend(conn: redis.Redis) -> None:
    put(Broker(conn), "q", "e", priority=9)
    hand = Hand(Broker(conn), "q")
    assert hand.tell(hand.take()) == "ok"


def _batched(conn: redis.Redis) -> None:
    with Batch("b", queue="q", connection=conn) as batch:
        batch.enqueue(TASK)
        with Batch(parent=batch, connection=conn):
            pass
    assert [result.status for result in batch.results()] == ["open"]
    assert batch.info().finished == 1


#: What each single permission is for.
NEEDED: dict[str, Operation] = {
    "+@read": lambda conn: Inspector(conn).job("a"),
    "+@write": lambda conn: Broker(conn).pause("other", None),
    "+eval": lambda conn: put(Broker(conn), "q", "x"),
    "+evalsha": _twice,
    "+time": lambda conn: Inspector(conn).now(),
    "+info": read_server,
    "+ping": lambda conn: conn.ping(),
    "+select": lambda conn: conn.ping(),
    "+subscribe": _subscribe,
    "+publish": lambda conn: Broker(conn).command("w", "shutdown"),
    "+wait": _replicated,
    "~rq:[^a]*": lambda conn: Inspector(conn).job("a"),
    "%R~rq:audit": lambda conn: AuditInspector(conn).entries(),
    "(~rq:audit +xadd)": lambda conn: AuditBroker(conn).log_audit("n", {"who": "me"}),
    "&rq:*": _subscribe,
}


def test_each_permission_is_one_that_is_needed() -> None:
    assert {term for term in terms(acl_rules()) if term[0] in "+~&%("} == set(NEEDED)


@pytest.mark.parametrize("term", NEEDED)
def test_without_it_something_is_refused(server: SpawnedServer, term: str) -> None:
    with user(server, acl_rules()) as conn:
        NEEDED[term](conn)
        _extend(conn)
    without = " ".join(word for word in terms(acl_rules()) if word != term)
    with user(server, without) as conn, pytest.raises(redis.ResponseError, match=REFUSED):
        NEEDED[term](conn)


BANNED = {
    "KEYS *": "-@dangerous",
    "FLUSHALL": "-@dangerous",
    "FLUSHDB": "-@dangerous",
    "SORT rq:queues": "-@dangerous",
    "SWAPDB 0 1": "-@dangerous",
    "FUNCTION FLUSH": "-@scripting",
    "FUNCTION DELETE lib": "-@scripting",
    "SCAN 0": "-scan",
    "RANDOMKEY": "-randomkey",
    "DBSIZE": "-dbsize",
}


@pytest.mark.parametrize("command", BANNED)
def test_without_its_ban_it_would_be_allowed(server: SpawnedServer, command: str) -> None:
    with user(server, acl_rules()) as conn:
        for prefix in ((), ("EVAL", "return redis.call(unpack(ARGV))", 0)):
            with pytest.raises(redis.ResponseError, match=REFUSED):
                conn.execute_command(*prefix, *command.split())
    with user(server, acl_rules().replace(f" {BANNED[command]}", "")) as conn:
        if command == "FUNCTION DELETE lib":
            conn.execute_command("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() end)")
        conn.execute_command(*command.split())


def test_a_producer_with_the_rules_of_before_goes_on_and_is_not_bounded_by_what_it_may_not_read(server: SpawnedServer) -> None:
    newer = ("gates", "blocked", "inbox")
    before = " ".join(word for word in producer_rules().split() if not any(name in word for name in newer))
    with user(server, before) as conn, server.client() as admin:
        admin.select(1)
        Broker(admin).set_gate("q", {"max_length": 1})
        for job_id in ("a", "b"):
            put(Broker(conn), "q", job_id)
        with pytest.raises(redis.ResponseError, match=REFUSED):  # the caller does not believe that it holds
            Broker(conn).enqueue("q", [new("c")], "n", room=Room(9))
        assert admin.zcard("rq:queue:q") == 2
    with user(server, producer_rules()) as conn, server.client() as admin:
        admin.select(1)
        Broker(admin).set_gate("q", {"max_length": 1})
        put(Broker(conn), "q", "a")
        with pytest.raises(QueueFull):
            put(Broker(conn), "q", "b")


#: Commands without a key, which no pattern restrains, that somebody with the rules may send. None of them says anything of others' data.
KEYLESS = {"eval", "evalsha", "time", "info", "ping", "select", "subscribe", "publish", "wait"}
#: Everybody may, before any login.
ANYBODY = {"auth", "hello", "quit", "reset"}
#: Tells the server's version, as INFO does; and two whose keys stand behind a word that this test does not say.
HARMLESS = {"lolwut", "xread", "xreadgroup"}


def _without_keys(server: SpawnedServer) -> dict[str, int]:
    """Each command that has no key where the server would look for one, with as many words as it takes."""
    with server.client() as admin:
        found = {}
        admin.response_callbacks.pop("COMMAND", None)  # redis-py's stumbles over what newer servers say
        for row in admin.execute_command("COMMAND"):
            below = row[9] if len(row) > 9 else []
            for name, arity, first_key in [(one[0], one[1], one[3]) for one in below or [row]]:
                said = name.decode() if isinstance(name, bytes) else name
                if first_key == 0:
                    found[said] = abs(arity)
        return found


def test_nothing_without_a_key_is_allowed_but_what_is_needed(server: SpawnedServer) -> None:
    """New commands come with new servers, and belong to @read and @write."""
    with user(server, acl_rules()), server.client() as admin:
        allowed = set()
        for name, words in _without_keys(server).items():
            parts = name.split("|")
            answer = admin.execute_command("ACL", "DRYRUN", "fusion", *parts, *["1"] * max(0, words - len(parts)))
            if answer in (b"OK", "OK"):
                allowed.add(name)
    assert KEYLESS - {"publish", "subscribe"} <= allowed, "those two are for some channels only"
    assert allowed - ANYBODY - KEYLESS <= HARMLESS


READ_ONLY = [
    "INCR rq:suspended",
    "HSET rq:schema min_writer 99",
    "INCR rq:paused:q",
    "HSET rq:wildcards x 1",
    "PEXPIRE rq:events 1",
    "PEXPIRE rq:queue:q 1",
]


@pytest.mark.parametrize("command", READ_ONLY)
def test_a_producer_may_read_what_it_must_not_write(server: SpawnedServer, command: str) -> None:
    if read_server(server.client()).version < (7,):
        pytest.skip("the page says that 6.2 has no way to hold this")
    with user(server, producer_rules()) as conn:
        for prefix in ((), ("EVAL", "return redis.call(unpack(ARGV))", 0)):
            with pytest.raises(redis.ResponseError, match=REFUSED):
                conn.execute_command(*prefix, *command.split())
    with user(server, producer_rules(server=6)) as conn:  # as the page says
        conn.execute_command(*command.split())


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize(
    "command",
    [
        "ZADD rq:queue:_callbacks 1 cb-1795341570123456-1",
        "HSET rq:job:cb-1795341570123456-1 data x",
        "HGETALL rq:job:cb-1795341570123456-1",
        "ZRANGE rq:queue:_callbacks 0 -1",
        "RPUSH rq:wake:_callbacks 1",
        "ZADD rq:finished:_callbacks 1 x",
        "DEL rq:events",
        "UNLINK rq:events",
        "DEL rq:queue:q",
        "EXPIRE rq:queue:q 1",
        "RENAME rq:queue:q rq:queue:p",
    ],
)
def test_a_producer_plants_no_callback_and_deletes_nothing(server: SpawnedServer, command: str, version: int) -> None:
    with user(server, producer_rules(server=version)) as conn:
        for prefix in ((), ("EVAL", "return redis.call(unpack(ARGV))", 0)):
            with pytest.raises(redis.ResponseError, match=REFUSED):
                conn.execute_command(*prefix, *command.split())


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("job_id", ["c", "cb", "cb1", "ca-b", "cab", "cron", "x", "0b-1"])
def test_every_id_that_a_caller_may_choose_works_for_a_producer(server: SpawnedServer, job_id: str, version: int) -> None:
    with user(server, producer_rules(server=version)) as conn:
        assert Queue("q", conn).enqueue(TASK, job_id=job_id).get_status() == "queued"


@pytest.mark.parametrize(
    "command", ["XADD rq:events MAXLEN 0 * a b", "HSET rq:job:x data y", "ZREM rq:queue:q x", "INCRBY rq:seq 5"]
)
def test_producers_can_do_what_the_page_lists(server: SpawnedServer, command: str) -> None:
    with user(server, producer_rules()) as conn:
        conn.execute_command(*command.split())


@pytest.mark.parametrize("version", [6, 7])
def test_a_producer_reads_the_graph_of_a_parent_whose_children_are_many(server: SpawnedServer, version: int) -> None:
    with user(server, producer_rules(server=version)) as conn:
        parent = Queue("q", conn).enqueue(TASK)
        conn.sadd(f"rq:job:{parent.id}:dependents", *(f"c{n}" for n in range(3000)))  # as stock RQ keeps them
        assert len(parent.tree(limit=1000).nodes) == 1000


# -- one who only looks

READER = "resetkeys resetchannels -@all ~rq:* +@read +eval +evalsha +select +ping"


def test_the_scripts_that_look_at_graphs_need_no_right_to_write(server: SpawnedServer) -> None:
    with user(server, READER) as conn:
        writer = Queue("q", connect(f"{server.url}?db=1"))
        with Batch(queue="q", id="b", connection=writer.connection) as batch:
            batch.enqueue(TASK, job_id="a")
        writer.enqueue(TASK, job_id="c", depends_on="a")
        looks = Inspector(conn)
        for _ in range(2):
            assert [one.id for one in looks.walk_graph([("b", "a")], ["status", "parents"])] == ["a", "c"]
            assert looks.count_members("b")[0] == 1
        server.client().execute_command("ACL", "SETUSER", "fusion", "resetkeys", "~rq:job:a")
        with pytest.raises(redis.ResponseError, match=REFUSED):
            looks.walk_graph([("b", "a")], ["status", "parents"])
        server.client().execute_command("ACL", "SETUSER", "fusion", "resetkeys", "~rq:batch:*")
        with pytest.raises(redis.ResponseError, match=REFUSED):
            looks.count_members("b")  # and does not call it a member without a record
        writer.connection.close()


# -- one who only enqueues


def _related(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    parents = queue.enqueue_many([Queue.prepare_data(TASK) for _ in range(110)])
    assert len(queue.enqueue(TASK, depends_on=parents).tree().nodes) == 111
    with pytest.raises(TimeoutError, match="2 have not ended"):
        parents[0].wait(0, tree=True)


ROADS: dict[str, Operation] = {
    "enqueue": lambda conn: Queue("q", conn).enqueue(TASK, ttl=5, callback_url="https://example.com/x"),
    "at front": lambda conn: Queue("q", conn).enqueue(TASK, at_front=True, priority=2),
    "many": lambda conn: Queue("q", conn).enqueue_many([Queue.prepare_data(TASK, at_front=n == 1) for n in range(3)]),
    "a list": lambda conn: Queue("scheduler", conn).enqueue(TASK),
    "in": lambda conn: Queue("q", conn).enqueue_in(60, TASK),
    "at": lambda conn: Queue("q", conn).enqueue_at(datetime.now(timezone.utc) + timedelta(hours=1), TASK),
    "replicated": _replicated,
    "with a key": lambda conn: Queue("q", conn).enqueue_many(
        [Queue.prepare_data(TASK, concurrency_key="k", priority=n) for n in (1, 1, 2)]
    ),
    "unique": lambda conn: Queue("q", conn).options(unique_key="u", unique_window=60).enqueue(TASK),
    "unique, the newest": lambda conn: Queue("q", conn).enqueue_in(
        60, TASK, unique_key="n", on_duplicate="replace", max_delay=90, callback_url="https://example.com/x"
    ),
    "unique, in a time": lambda conn: Queue("q", conn).enqueue(TASK, unique_key="a", unique_until="accept", unique_window=60),
    "unique, or not at all": lambda conn: Queue("q", conn).enqueue(
        TASK, unique_key="d", on_duplicate="replace", concurrency_key="once", on_conflict="discard"
    ),
    "in a batch": _batched,
    "after others": _related,
    "or not at all": lambda conn: Queue("q", conn).enqueue(TASK, max_concurrent=1, limit_duration=5, on_conflict="discard"),
}


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("road", ROADS)
def test_a_producer_may_enqueue_in_every_way(server: SpawnedServer, road: str, version: int) -> None:
    with user(server, producer_rules(server=version)) as conn, redis.Redis.from_url(f"{server.url}?db=1", protocol=2) as admin:
        Hand(Broker(admin), "other")  # a worker's, which begins the data
        ROADS[road](conn)
        ROADS[road](conn)


def test_a_producer_sees_how_its_jobs_end_and_may_use_their_ids_again(server: SpawnedServer) -> None:
    with user(server, producer_rules()) as conn, redis.Redis.from_url(f"{server.url}?db=1", protocol=2) as admin:
        hand = Hand(Broker(admin), "q")
        for kind in ("finished", "failed"):
            job = Queue("q", conn).enqueue(TASK, job_id="mine")
            assert (job.get_status(), job.get_position()) == ("queued", 0)
            hand.tell(hand.take(), kind, fields={"result": "5"} if kind == "finished" else {})
            assert Job.fetch("mine", conn).wait(1) == kind
            assert job.result == (5 if kind == "finished" else None)
        Broker(admin).pause("q", None)
        Queue("q", conn).enqueue(TASK, job_id="mine")
        Broker(admin).cancel("mine")
        Queue("q", conn).enqueue(TASK, job_id="mine")
        assert fields_of(admin, "mine")["status"] == "queued"


def test_a_producer_may_use_an_id_again_that_was_made_by_chance(server: SpawnedServer) -> None:
    with user(server, producer_rules()) as conn, redis.Redis.from_url(f"{server.url}?db=1", protocol=2) as admin:
        broker = Broker(admin)
        Hand(broker, "q")  # a worker's, which begins the data
        job = Queue("q", conn).enqueue(TASK)
        assert "nonce" not in fields_of(admin, job.id)
        broker.cancel(job.id)
        Queue("q", conn).enqueue(TASK, job_id=job.id)
        assert fields_of(admin, job.id)["status"] == "queued"


@pytest.mark.parametrize(
    "command",
    [
        "PUBLISH rq:pubsub:w {}",
        "SUBSCRIBE rq:pubsub:w",
        "SET rq:suspended 1",
        "ZADD rq:wip:q 1 a",
        "HSET rq:worker:w pid 1",
        "SADD rq:workers rq:worker:w",
        "HGET rq:cron:entry:e spec",
        "HSET rq:cron:entry:e spec x",
        "ZADD rq:cron:due 1 e",
        "XRANGE rq:events - +",
        "XTRIM rq:events MAXLEN 0",
        "HSET rq:sink:file n 1",
        "SMEMBERS rq:workers",
        "SCAN 0",
        "RENAME rq:queue:q rq:queue:p",
        "INFO",
        "CONFIG GET *",
        "KEYS *",
    ],
)
def test_a_producer_may_neither_command_the_fleet_nor_touch_what_is_not_of_jobs(server: SpawnedServer, command: str) -> None:
    with user(server, producer_rules()) as conn:
        for through_a_script in (False, True):
            prefix = ("EVAL", "return redis.call(unpack(ARGV))", 0) if through_a_script else ()
            with pytest.raises(redis.ResponseError, match=REFUSED):
                conn.execute_command(*prefix, *command.split())


def test_the_documentation_has_both_lines() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    assert text.count(acl_rules()) == 2
    assert text.count(acl_rules(server=6) + "\n") == 1
    for version in (6, 7):
        assert f"ACL SETUSER producer on >PASSWORD {producer_rules(server=version)}\n" in text
