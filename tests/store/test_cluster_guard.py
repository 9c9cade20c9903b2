"""A slot that moves key by key stops at each boundary between two keys. There, a call of a script is refused as a whole.

A node that gives its slot away has only some of the keys, and refuses commands on the others. A script that is already running stops at such a
command, and its writes before that stay: the call tears. So each call names a key that never exists: see `Script` in
fusion/store/scripting/scripts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion.store.client.classify import classify, is_moving
from fusion.store.scripting.scripts import Script
from fusion.store.write.broker import Broker
from tests.kit.clusters import PREFIX, ClusterAsServer, ClusterOfTests
from tests.kit.tagged import CLUSTERED
from tests.store.cluster_hands import KEY, HalfMoved, Words, before_first_write, calls_caught, late, without_guard
from tests.store.test_scripts import REPEATED, scenario

pytestmark = [
    pytest.mark.skipif(not CLUSTERED, reason="the keys of other tests have a hash tag in `make test-cluster` only"),
    pytest.mark.timeout(180),
]

#: More calls: those of `scenario` cancel and stop jobs that run, which writes one key.
MORE = ("cancel_queued", "stop_queued", "unpause_paused")
NAMES = [name for name in (*REPEATED, *MORE) if name != "suspend"]  # that is no script


def calls(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Return the calls of `scenario`, and `MORE`."""
    found, broker = scenario(conn), Broker(conn)
    return {
        **found,
        "cancel_queued": lambda: broker.cancel("j7"),
        "stop_queued": lambda: broker.stop("j7"),
        "unpause_paused": lambda: broker.unpause("q"),
    }


def call_of(conn: redis.Redis, name: str) -> tuple[Script, Words]:
    """Return the first call of a script that this makes."""
    call = calls(conn)[name]
    with calls_caught() as caught:
        call()
    return caught[0]


@pytest.fixture
def whole(redis_server: ClusterAsServer) -> ClusterOfTests:
    return redis_server.cluster


#: One call of each kind. The others are long.
CORE = ("enqueue", "turn_tied", "cancel_queued", "requeue", "promote")


@pytest.mark.parametrize("name", CORE)
def test_a_call_between_two_keys_changes_nothing(conn: redis.Redis, whole: ClusterOfTests, name: str) -> None:
    refused_at_each_boundary(conn, whole, name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in CORE])
def test_no_call_between_two_keys_changes_anything(conn: redis.Redis, whole: ClusterOfTests, name: str) -> None:
    refused_at_each_boundary(conn, whole, name)


def refused_at_each_boundary(conn: redis.Redis, whole: ClusterOfTests, name: str) -> None:
    script, words = call_of(conn, name)
    half = HalfMoved(whole, script, words)
    stops = [(half.keys[nth - 1 : nth], half.keys[nth:]) for nth in range(len(half.keys) + 1)]
    with half.moving():
        found = half.stop(stops)
    for nth, (answer, before, after) in enumerate(found):
        assert is_moving(answer), f"{nth} of {len(half.keys)} keys are away, and the answer is {answer!r}"
        assert classify(answer) == "transient"
        assert set(before) == set(half.keys[nth:])
        assert after == before, f"{nth} of {len(half.keys)} keys are away"
    ((answer, *_),) = half.stop([((), ())])
    assert not isinstance(answer, Exception), answer
    assert conn.exists(KEY) == 0


# -- without the guard

#: Calls that write one key, so that there is no boundary.
ONE_KEY = (
    *(
        "cancel",
        "cancel_running",
        "stop",
        "stop_running",
        "endpoint_gone",
        "save_meta",
        "pause",
        "schema_raise",
        "cron_put_faulty",
    ),
    *("events_trim", "note_copy", "lease_operation", "advance_operation", "hold_probation", "enqueue_no_rows"),
)
#: Calls that use no key after their first write that they do not name in KEYS. Redis checks those before the script runs.
ALL_NAMED = ("cron_pause", "cron_fault", "scheduler_beat", "scheduler_leave", "events_read", "events_ack", "relay_leave")
#: Calls that use a key before their first write, or with it, that is not there whenever they go on to write. A node that gives its slot
#: away refuses any key that it lacks, so the call ends there. For each the key, or its beginning.
ABSENT = {
    # the record of what they make
    **dict.fromkeys(
        ("enqueue", "enqueue_later", "enqueue_list", "enqueue_part", "enqueue_tied", "enqueue_batch", "enqueue_unique"), "job:"
    ),
    **dict.fromkeys(("enqueue_rows", "restore"), "job:"),
    "open_batch": "batch:new",
    "open_operation": "operation:o-n",
    "cron_put": "cron:entry:new",
    # the mark of the call, by which a second copy of it is known
    **dict.fromkeys(("log_event", "log_audit"), "events:said:"),
    # they start jobs, or ring for them, only while the fleet is not suspended
    **dict.fromkeys(("turn_rated", "follow", "ring"), "suspended"),
    # the queue is not paused: see unpause_paused
    "unpause": "paused:q",
    # the limit of a job that has no concurrency key: there is never one
    "requeue_unique": "limit:",
    # nothing was told yet
    "tell_verdict": "callbacks:verdicts",
    # a batch that is gone has no members
    "tend_batches": "batch:gone:members",
}
TORN = [name for name in NAMES if name not in (*ONE_KEY, *ALL_NAMED, *ABSENT)]


@pytest.mark.long
@pytest.mark.parametrize("name", TORN)
def test_without_the_guard_it_would_tear(conn: redis.Redis, whole: ClusterOfTests, name: str) -> None:
    """Else the tests above would show nothing."""
    assert unguarded(conn, whole, name).tears()


@pytest.mark.long
@pytest.mark.parametrize("name", [*ONE_KEY, *ALL_NAMED, *ABSENT])
def test_why_it_would_not_tear(conn: redis.Redis, whole: ClusterOfTests, name: str) -> None:
    half = unguarded(conn, whole, name)
    steps = half.steps()
    if name in ONE_KEY:
        assert len({key for step in steps if step.writes for key in step.keys}) == 1
    elif name in ALL_NAMED:
        assert half.named <= set(half.keys)
        assert set(late(steps)) <= half.named
    else:
        absent = {*before_first_write(steps), *half.named} - set(half.keys)
        assert any(key.startswith(f"{PREFIX}{ABSENT[name]}".encode()) for key in absent)
    assert not half.tears()


_HASHES = (
    "gates gates:settings wildcards waits sample survey clean queues:idle totals:elsewhere sink:new relay:new scheduler:process:new"
    " job:k2:parents job:apart:parents logs:sizes log:apart"
)
_SORTED_SETS = (
    "finished:q canceled:q stopped:q finished:limited finished:alone stopped:bulk queue:limited waits:held:q:shop.f callbacks:gone"
    " history:queues history:functions history:keyless logs job:j1:children job:apart:dependents totals failures:empty pinned"
)


def in_use(conn: redis.Redis, name: str) -> None:
    """Add what a fleet has that has run for a while. Without it some calls read a key that is not there, and are refused before they write."""
    for key in "fifos job:j1:dependents job:k2:dependencies".split():
        conn.sadd(f"rq:{key}", "elsewhere")
    for key in _HASHES.split():
        conn.hsetnx(f"rq:{key}", "elsewhere", "1")
    for key in _SORTED_SETS.split():
        conn.zadd(f"rq:{key}", {"elsewhere": 9e15}, nx=True)
    conn.xadd("rq:events:parked:held", {"event": "elsewhere"})
    if (name.startswith("turn") and name != "turn_rated") or name == "resume":
        conn.set("rq:suspended", "1")
    if name == "unpause_paused":
        conn.set("rq:paused:q", "1")


def unguarded(conn: redis.Redis, whole: ClusterOfTests, name: str) -> HalfMoved:
    """Prepare a call without its guard. A turn is that of a suspended fleet: others name `suspended` in KEYS, which is not there."""
    script, words = call_of(conn, name)
    in_use(conn, name)
    return HalfMoved(whole, script, without_guard(words))
