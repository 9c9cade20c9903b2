"""The scripts as such: how they are put together, and that every call may be sent twice, late, or into a server that forgot it."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fusion.store.client.connections import _NO_SETINFO
from fusion.store.layout.records import LogLine, Report, Turn
from fusion.store.layout.schema import Schema
from fusion.store.read.graph_inspector import GraphInspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import Script, load
from fusion.store.write.batch_broker import BatchBroker
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import CallbackBroker, EventBroker
from fusion.store.write.job_broker import JobBroker
from fusion.store.write.limit_broker import LimitBroker
from fusion.store.write.operation_broker import AuditBroker, OperationBroker
from fusion.store.write.schema_broker import SchemaBroker
from fusion.store.write.worker_broker import WorkerBroker
from tests.events.hands import event_scenario
from tests.kit import guarded
from tests.kit.hands import (
    LEASE,
    Hand,
    events_of,
    everything,
    expire_lease,
    fields_of,
    ids,
    may_reap,
    new,
    now_ms,
    outcome,
    over,
    put,
    wire,
)
from tests.kit.servers import SpawnedServer
from tests.kit.waiting import eventually
from tests.store.batch_hands import of_batches
from tests.store.cron_hands import of_cron, said_nothing
from tests.store.kin_hands import child
from tests.store.limits_hands import of_limits
from tests.store.operation_hands import of_operations
from tests.store.trash_hands import of_trash
from tests.store.unique_hands import of_unique
from tests.store.waits_hands import of_waits
from tools import lua_build

LUA = resources.files("fusion.store") / "lua"
NAMES = sorted(entry.name.removesuffix(".lua") for entry in LUA.iterdir() if entry.name.endswith(".lua"))
CONSTANTS = FleetConstants(events_cap=100, result_ttl=500, failure_ttl=600, max_lost=5)
#: Not transitions: nothing to repeat safely but a token in a list, which is one at most.
READ = {"wrong_types", "enqueue_part", "callbacks_refused", "gone", "served", "callbacks_served", "readmit_endpoint", "stored",
        "lock_call", "unlock_call", "turn_call", "turn_line", "callbacks_secret", "agree", "unpark", "forget",
        "pin_limit", "pin_rate", "pause_limit", "resume_limit", "do_operation", "running_operations", "run_id",
        "empty_to_trash", "delete_to_trash", "may_keep"}  # fmt: skip
LOOKS = {"cron_due", "walk_graph", "count_members"}  # they change nothing


# -- how they are put together


def test_every_script_has_its_method() -> None:
    members = [
        item
        for kind in (
            Broker,
            AuditBroker,
            BatchBroker,
            CallbackBroker,
            JobBroker,
            WorkerBroker,
            LimitBroker,
            CronBroker,
            EventBroker,
            OperationBroker,
            SchemaBroker,
            GraphInspector,
        )
        for item in vars(kind).items()
    ]
    methods = {name for name, value in members if callable(value) and not isinstance(value, staticmethod | classmethod)}
    assert set(NAMES) == {name for name in methods if not name.startswith("_")} - READ - {"suspend", "command", "adopt"}


@pytest.mark.parametrize("name", NAMES)
def test_the_header_of_a_script(name: str) -> None:
    own = (LUA / f"{name}.lua").read_text()
    assert own.startswith(f"-- {name}: ")
    source = load(name)
    assert re.search(r"^-- Returns: ", own, re.MULTILINE)
    for kind, names in (("K", source.keys), ("A", source.args)):
        assert set(re.findall(rf"\b{kind}_(\w+)", own)) <= set(names)
        table = {"K": "KEYS", "A": "ARGV"}[kind]
        assert all(f"{table}[{nth}]" in source.body.replace("argv[", "ARGV[") for nth in range(1, len(names) + 1)), (
            "named and not used"
        )
    said = re.search(r"^-- Events: (.*)$", own, re.MULTILINE)
    emitted = set(re.findall(r"emit\('(\w+)'", "\n".join(line.text for line in lua_build.joined(name))))
    assert set(said[1].split() if said else ()) <= emitted
    assert set(re.findall(r"emit\('(\w+)'", own)) <= set(said[1].split() if said else ())


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_left_unreplaced(name: str) -> None:
    text = load(name).text(CONSTANTS, (7,))
    assert not re.search(r"\b[KA]_\w+|\bREST\b|\bRUN_FIELDS\b", text)
    assert not re.search(r"call\('(KEYS|SCAN|FLUSH\w*|EVAL\w*)'", text)
    assert "tostring(score" not in text


def test_flags_and_the_text_for_old_servers() -> None:
    turn, enqueue = load("turn"), load("enqueue")
    assert turn.text(CONSTANTS, (7, 2)).startswith("#!lua flags=allow-oom\n")
    assert turn.text(CONSTANTS, (6, 2)).startswith("redis.call('DEL', \"rq:oom\")\n")
    assert enqueue.text(CONSTANTS, (7, 2)) == enqueue.text(CONSTANTS, (6, 2))
    assert not enqueue.text(CONSTANTS, (7, 2)).startswith("#!")


@pytest.mark.parametrize("prefix", ["rq:", "app 1:{x}:", "quote\"'\\:", "новый:", "%s%d:"])
def test_any_prefix(conn: redis.Redis, prefix: str) -> None:
    guarded.allow_prefix(conn, prefix)
    broker = Broker(conn, FleetConstants(prefix=prefix))
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    assert hand.tell(hand.take()) == "ok"
    broker.clean()
    assert {key.decode().startswith(prefix) for key in conn.scan_iter()} == {True}
    assert conn.hget(f"{prefix}job:a", "status") == b"finished"
    cron = CronBroker(conn, FleetConstants(prefix=prefix))
    cron.scheduler_beat("s", "i", LEASE, 420, {"app": "a", "version": "1"})
    assert cron.cron_put("e", "p", "s", "r", app="a", version="1") == "new"
    assert cron.cron_run("e", "r", new("-"), "q", "n", overlap="skip") == ("ok", "cron-e-manual-1")
    assert {key.decode().startswith(prefix) for key in conn.scan_iter()} == {True}


def test_a_call_is_one_command_and_a_forgotten_script_one_more(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a")
    conn.script_flush()
    with wire(conn) as sent:
        put(broker, "q", "b")
        put(broker, "q", "c")
    assert sent == ["EVALSHA", "EVAL", "EVALSHA"]


def test_the_servers_version_is_asked_for_once_and_not_by_producers(conn: redis.Redis, broker: Broker) -> None:
    with wire(conn) as sent:
        put(broker, "q", "a")
        assert "INFO" not in sent
        hand = Hand(broker, "q")
        hand.turn()
    assert sent.count("INFO") == 1


def test_an_error_of_a_script_is_raised_as_it_comes(conn: redis.Redis) -> None:
    script = Script("ring", conn, CONSTANTS, (7,))
    script({}, {"queue": "q", "waiter": ""})
    with pytest.raises(KeyError):
        script({}, {})
    conn.set("rq:workers", "junk")
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        Broker(conn).prune(LEASE, "host.1")


def scenario(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Each method of the brokers, with something to do."""
    broker = Broker(conn)
    hand, silent = Hand(broker, "q", "scheduler"), Hand(broker, "q", name="silent.1")
    put(broker, "q", *(f"j{i}" for i in range(12)), ttl=600)
    put(broker, "scheduler", "s1", "s2", "s3")
    conn.rpush("rq:queue:scheduler", "unknown")
    silent.claim(2)
    hand.tell(hand.take("q"), "failed", reason="r")
    hand.tell(hand.take("q"), "retry", reason="r", delay=0.001)
    running = hand.claim(2, ["q"])
    conn.hset(f"rq:job:{running[0].id}", mapping={"hooks": 1, "callback_url": "https://x/", "failed_task_handler": "https://y/"})
    expire_lease(conn, "q", running[1].id)
    conn.hset(f"rq:job:{running[1].id}", "lost", 1)
    conn.hset("rq:worker:silent.1", "beat_ms", 1)
    conn.zadd("rq:queue:q", {"old": 1})
    conn.hset("rq:job:old", "data", "d")
    may_reap(conn)
    broker.enqueue("q", [new("later", due=now_ms(conn) / 1000 + 60, ttl=5), new("soon", delay=30.0)], "nonce")
    broker.enqueue_part("kin", [new("k1", ties="p"), child("k2", "k1")], "17", 0)
    broker.enqueue_part("kin", [new("k3", ties="p")], "18", 0)
    broker.enqueue("q", [new("apart", ties="h"), new("apart_later", ties="h", delay=9.0)], "nonce")
    conn.zadd("rq:releasing", {"u apart": 1, "u apart_later": 1})
    put(broker, "q", "over", ttl=60)
    over(conn, "over")
    hand.token += 1
    token = hand.token
    inc = hand.incarnation
    due = now_ms(conn) / 1000 + 3600
    return {
        "enqueue": lambda: broker.enqueue("q", [new("n1"), new("n2", front=True, ttl=5)], "nonce"),
        "enqueue_later": lambda: broker.enqueue(
            "q", [new("n3"), new("n4", due=due, ttl=5), new("n5", delay=9.0, front=True)], "nonce"
        ),
        "reschedule": lambda: broker.reschedule("later", due),
        "enqueue_list": lambda: broker.enqueue("scheduler", [new("l1"), new("l2", front=True)], "nonce"),
        "requeue": lambda: broker.requeue(["j2"], "nonce"),
        "requeue_later": lambda: broker.requeue(["j2"], "nonce", delay=60.0),
        "requeue_chosen": lambda: broker.requeue(["j2"], "nonce", quarantined=False),
        "quarantine": lambda: broker.quarantine(["j2", "j3", "nobody"], "why"),
        "turn": lambda: hand.turn(outcome(running[0], fields={"result": "1"}), slots=[0, 0], token=token),
        "turn_failed": lambda: hand.turn(outcome(running[0], "failed", reason="two\nlines"), slots=[0], token=token),
        "turn_told": lambda: hand.turn(outcome(running[0], "failed", reason="r"), slots=[0], token=token),
        "turn_later": lambda: hand.turn(outcome(running[0], "later", delay=5.0, reason="busy"), slots=[0], token=token),
        "turn_retry": lambda: hand.turn(outcome(running[0], "retry", delay=5.0, attempt={"maxrss": 1}), slots=[0], token=token),
        "turn_lost": lambda: hand.turn(outcome(running[0], "lost", attempt={"signal": 9}), slots=[0], token=token),
        "turn_lost_again": lambda: hand.turn(outcome(running[1], "lost", attempt={"signal": 9}), slots=[0], token=token),
        "extend": lambda: hand.extend(*running),
        "register": lambda: broker.register("host.1", inc, LEASE, 420, {"queues": "q"}),
        "deregister": lambda: said_nothing(broker.deregister("host.1", inc)),
        "reap": lambda: said_nothing(broker.reap(LEASE, 0)),
        "prune": lambda: said_nothing(broker.prune(LEASE)),
        "prune_named": lambda: said_nothing(broker.prune(LEASE, "silent.1")),
        "promote": lambda: said_nothing(broker.promote()),
        "expire": lambda: said_nothing(broker.expire()),
        "enqueue_part": lambda: broker.enqueue_part("kin", [child("k4", "k2")], "17", 1),
        "add_parents": lambda: broker.add_parents("k2", "17", 1, ["j1"]),
        "release_graph": lambda: broker.release_graph("17", "kin", new("k1")),
        "drop_graph": lambda: broker.drop_graph("18"),
        "release": lambda: said_nothing(broker.release()),
        "clean": lambda: said_nothing(broker.clean()),
        "survey": lambda: broker.survey({"?": " ^.$"}, 0),
        "cancel": lambda: broker.cancel("j5"),
        "cancel_running": lambda: broker.cancel(running[0].id),
        "stop": lambda: broker.stop("j5"),
        "stop_running": lambda: broker.stop(running[0].id),
        "delete": lambda: said_nothing(broker.delete(["j6", "j2"])),
        "empty": lambda: said_nothing(broker.empty("q", 50)),
        "endpoint_gone": lambda: said_nothing(broker.endpoint_gone("https://x/")),
        "tell_verdict": lambda: broker.tell_verdict("https://x/", "unhealthy", True, "n1", "unhealthy", "{}"),
        "log_event": lambda: broker.log_event([LogLine("log", "said", "j1", age=0.5)], "nonce"),
        "log_audit": lambda: AuditBroker(conn).log_audit("nonce", {"who": "a@b", "action": "pause"}),
        "save_meta": lambda: broker.save_meta(running[0].id, "{}", running[0].execution_id),
        "report": lambda: broker.report("host.1", [Report(running[0].id, running[0].execution_id, b'{"done":1}', b"5", "1")]),
        "ring": lambda: broker.ring("q"),
        "suspend": lambda: broker.suspend(),
        "resume": lambda: said_nothing(broker.resume()),
        "pause": lambda: broker.pause("q"),
        "unpause": lambda: said_nothing(broker.unpause("q")),
        "note_history": lambda: broker.note_history("host.1", 1, {("queue", "q"): [(0, "1:completed", 1)]}),
        "set_gate": lambda: broker.set_gate("q", {"max_length": 9, "timeout": None}),
        "set_gate_of_setting": lambda: broker.set_gate("limited", {"limit": 9}, of_setting=True),
        "schema_raise": lambda: SchemaBroker(conn).schema_raise("host.9", Schema(3)),
        **of_cron(conn),
        **event_scenario(conn),
        **of_limits(conn),
        **of_batches(conn),
        **of_unique(conn),
        **of_trash(conn),
        "note_copy": lambda: broker.note_copy("j5", "j6"),
        **of_operations(conn),
    } | of_waits(conn, hand, running[0], token)


REPEATED = [
    "enqueue", "enqueue_later", "reschedule", "enqueue_list", "requeue", "requeue_later", "requeue_chosen", "quarantine", "turn", "turn_failed",
    "turn_told", "turn_later", "turn_retry", "turn_lost", "turn_lost_again", "extend", "register", "deregister", "reap", "prune", "prune_named",
    "promote", "expire", "enqueue_part", "add_parents", "release_graph", "drop_graph", "release", "clean", "survey", "cancel", "cancel_running",
    "stop", "stop_running", "delete", "empty", "endpoint_gone", "tell_verdict", "log_event", "log_audit", "save_meta", "report", "ring",
    "suspend", "resume", "pause", "unpause", "note_history", "set_gate", "set_gate_of_setting", "schema_raise", "cron_put", "cron_put_changed",
    "cron_put_faulty", "cron_retire", "cron_remove", "cron_pause", "cron_resume", "cron_run", "cron_tick", "cron_tick_overlap", "cron_fault",
    "scheduler_beat", "scheduler_leave", "events_read", "events_ack", "events_trim", "relay_beat", "relay_leave", "lock", "lock_waits", "unlock",
    "set_limit", "release_slot", "enqueue_tied", "turn_tied", "turn_tied_released", "turn_rated", "open_batch", "close_batch",
    "close_batch_empty", "enqueue_batch", "cancel_batch", "tend_batches", "enqueue_unique", "requeue_unique", "turn_unique",
    "delete_kept", "empty_kept", "restore", "empty_trash",
    "note_copy", "open_operation", "lease_operation", "advance_operation", "cancel_operation", "reprioritise", "requeue_counted", "stop_counted",
    "delete_counted", "turn_struck", "turn_held", "hold_probation", "sample", "write_logs", "follow", "enqueue_rows", "enqueue_no_rows",
]  # fmt: skip


def test_every_method_is_repeated_here(conn: redis.Redis) -> None:
    assert list(scenario(conn)) == REPEATED
    assert set(NAMES) - LOOKS == {name for name in REPEATED if name in NAMES}


def test_a_look_changes_nothing(conn: redis.Redis) -> None:
    scenario(conn)
    before = everything(conn, clocks=True)
    found = CronBroker(conn).cron_due()
    assert {entry.id for entry in found.entries} == {"once", "old"}
    looks = GraphInspector(conn)
    assert [one.id for one in looks.walk_graph([("b", "k2")], ["status", "parents"])] == ["k2", "k1"]
    assert looks.count_members("wanted")[0] == 3
    assert everything(conn, clocks=True) == before


@pytest.mark.parametrize("name", REPEATED)
def test_a_resend_changes_nothing_and_answers_the_same(conn: redis.Redis, name: str) -> None:
    """ADR 0009."""
    call = scenario(conn)[name]
    untouched = everything(conn)
    first = call()
    before = everything(conn)
    assert before != untouched or name in ("extend", "register", "ring", "resume", "unpause"), "the first call does something"
    conn.script_flush()
    second = call()
    assert second == first
    assert everything(conn) == before


@pytest.mark.long
@pytest.mark.parametrize("name", REPEATED)
def test_a_forgetful_server_between_all_calls(conn: redis.Redis, name: str) -> None:
    """ADR 0012: SCRIPT FLUSH or a restart between any two calls is nobody's concern."""
    call = scenario(conn)[name]
    conn.script_flush(sync_type="ASYNC")
    call()


# -- a client's timeout does not mean that the server did nothing


class _Counting(redis.UnixDomainSocketConnection):
    made = 0

    def _connect(self) -> Any:
        type(self).made += 1
        return super()._connect()


def _sent_twice(server: SpawnedServer, call: Callable[[redis.Redis], Any]) -> Any:
    """Let redis-py time out on a stopped server and send again; both copies are executed once the server goes on."""
    _Counting.made = 0
    pool = redis.ConnectionPool(
        connection_class=_Counting,
        path=server.socket,
        socket_timeout=0.1,
        retry=Retry(NoBackoff(), 50),
        protocol=2,
        **_NO_SETINFO,
    )
    client = redis.Redis(connection_pool=pool)
    client.ping()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call(client)))
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        thread.start()
        eventually(lambda: _Counting.made >= 4, why="it has tried again")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    thread.join(10)
    return found[0]


def _calls(conn: redis.Redis) -> int:
    stats = conn.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def test_executed_and_timed_out(spawn: Callable[..., SpawnedServer]) -> None:
    """One call, several copies run: one job, claimed once, finished once."""
    server = spawn()
    conn = server.client()
    put(Broker(conn), "q", "warm")
    conn.delete("rq:queue:q", "rq:job:warm", "rq:events", "rq:events:meta")
    before = _calls(conn)
    _sent_twice(server, lambda client: put(Broker(client), "q", "a", "b", "c"))
    assert _calls(conn) >= before + 2, "more than one copy arrived"
    assert conn.zcard("rq:queue:q") == 3
    assert [e["event"] for e in events_of(conn)] == ["queued"] * 3

    hand = Hand(Broker(conn, server_version=(7,)), "q")
    hand.turn()  # the script is known: of copies that get NOSCRIPT only the last is sent in full
    hand.token += 1
    token = hand.token

    def turn(client: redis.Redis) -> Turn:
        hand.broker = Broker(client, server_version=hand.broker.server_version)
        return hand.turn(slots=[0], token=token)

    (claimed,) = _sent_twice(server, turn).jobs
    assert claimed.id == "a"
    assert (conn.zcard("rq:queue:q"), conn.zcard("rq:wip:q")) == (2, 1)
    assert fields_of(conn, "a")["deliveries"] == "1"
    sent = outcome(claimed)

    def finish(client: redis.Redis) -> Turn:
        hand.broker = Broker(client, server_version=hand.broker.server_version)
        return hand.turn(sent, slots=[0], token=token + 1)

    answer = _sent_twice(server, finish)
    assert (answer.answers, ids(answer.jobs)) == (["ok"], ["b"])
    assert conn.hget("rq:worker:host.1", "successful_job_count") == b"1"
    assert [int(e["n"]) for e in events_of(conn)] == list(range(1, len(events_of(conn)) + 1))
