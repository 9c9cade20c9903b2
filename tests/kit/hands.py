"""What the tests of the scripts share: jobs to enqueue, a worker's hands without a worker, and everything a Redis holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from fusion.store.layout.records import Claimed, ClaimFilter, Commit, NewJob, Turn, TurnRequest
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.kit.still import everything_at_once

TASK = "tasks.sms.sendSMS"
DATA = b'["tasks.sms.sendSMS",null,[],{}]'
#: What every job has that a producer enqueues: in a compact record most of it is not stored.
FULL = {"data": DATA, "description": TASK, "timeout": 180, "result_ttl": 500, "retryCount": 7}
LEASE = 30.0


def new(
    job_id: str,
    priority: int = 1,
    *,
    front: bool = False,
    ttl: float | None = None,
    due: float | None = None,
    delay: float | None = None,
    **fields: Any,
) -> NewJob:
    return NewJob(job_id, priority, {**FULL, **fields}, front, ttl, due, delay)


def put(broker: Broker, queue: str, *ids: str, priority: int = 1, **more: Any) -> None:
    """Enqueue, each call with a nonce of its own."""
    broker.enqueue(queue, [new(job_id, priority, **more) for job_id in ids], secrets.token_hex(6))


class Hand:
    """A registered worker's end of the broker: claims, keeps its token, tells outcomes."""

    def __init__(self, broker: Broker, *queues: str, name: str = "host.1", lease: float = LEASE, alone: bool = False) -> None:
        """`alone`: it runs one job at a time, those on probation too."""
        self.claim_filter = (
            ClaimFilter(sets=tuple(f"probation:{queue}" for queue in queues), alone=True) if alone else ClaimFilter()
        )
        self.broker, self.name, self.queues, self.lease = broker, name, list(queues), lease
        self.incarnation = secrets.token_hex(8)
        self.token = 0
        assert broker.register(name, self.incarnation, lease, 420, {"queues": ",".join(queues)})

    def turn(
        self,
        *commits: Commit,
        slots: Sequence[int] = (),
        queues: Sequence[str] | None = None,
        token: int | None = None,
        ahead: int = 0,
        begun: Sequence[Claimed] = (),
        claim_filter: ClaimFilter | None = None,
    ) -> Turn:
        """The next turn, or with `token` that one (again)."""
        if token is None:
            self.token += 1
        sent = self.token if token is None else token
        served = self.queues if queues is None else queues
        told = [(c.id, c.execution_id) for c in begun]
        own = claim_filter or self.claim_filter
        return self.broker.turn(
            TurnRequest(self.name, self.incarnation, sent, commits, served, slots, self.lease, 420, ahead, told, own)
        )

    def claim(self, count: int = 1, queues: Sequence[str] | None = None) -> list[Claimed]:
        jobs = self.turn(slots=[0] * count, queues=queues).jobs
        return (
            jobs if jobs or not self.claim_filter.alone else self.turn(slots=[0] * count, queues=queues).jobs
        )  # it was set aside first

    def take(self, *queues: str) -> Claimed:
        (job,) = self.claim(1, queues or None)
        return job

    def tell(self, claimed: Claimed, kind: str = "finished", **more: Any) -> str:
        """Commit one outcome; the answer."""
        (answer,) = self.turn(outcome(claimed, kind, **more)).answers
        return answer

    def extend(self, *held: Claimed, state: str = "busy") -> tuple[bool, list[str]]:
        pairs = [(c.id, c.execution_id) for c in held]
        return self.broker.extend(self.name, self.incarnation, pairs, self.lease, 420, state)


def outcome(claimed: Claimed, kind: str = "finished", *, fields: Mapping[str, Any] | None = None, **more: Any) -> Commit:
    return Commit(kind, claimed.id, claimed.execution_id, fields=fields or {}, keyed=claimed.keyed, **more)


def ids(jobs: Iterable[Claimed]) -> list[str]:
    return [job.id for job in jobs]


def drain(hand: Hand, batch: int = 50) -> list[str]:
    """Claim everything there is, in order."""
    order: list[str] = []
    while jobs := hand.claim(batch):
        order += ids(jobs)
    return order


def now_ms(conn: redis.Redis) -> int:
    seconds, micros = conn.time()
    return int(seconds) * 1000 + int(micros) // 1000


def may_reap(conn: redis.Redis) -> None:
    """As if the fleet had been looked at all the time: no outage to hold off for."""
    conn.hset("rq:reap", mapping={"last": now_ms(conn), "hold": 0})


def expire_lease(conn: redis.Redis, queue: str, *job_ids: str) -> None:
    conn.zadd(f"rq:wip:{queue}", {job_id: now_ms(conn) - 1 for job_id in job_ids}, xx=True)
    conn.zadd("rq:leases", {queue: now_ms(conn) - 1}, xx=True)


def over(conn: redis.Redis, *job_ids: str) -> None:
    """Their ttl is over."""
    for job_id in job_ids:
        conn.hset(f"rq:job:{job_id}", "expires_at", 1)
        conn.zadd("rq:expiring", {job_id: 1}, xx=True)


def promote_all(broker: Broker, conn: redis.Redis) -> None:
    """As if the time of every scheduled job had come."""
    for job_id in conn.zrange("rq:scheduler:scheduled_jobs", 0, -1):
        conn.zadd("rq:scheduler:scheduled_jobs", {job_id: 1})
    broker.promote()


def fields_of(conn: redis.Redis, job_id: str) -> dict[str, str]:
    raw: dict[bytes, bytes] = conn.hgetall(f"rq:job:{job_id}")
    return {name.decode(): value.decode("utf-8", "replace") for name, value in raw.items()}


def full_of(conn: redis.Redis, job_id: str) -> dict[str, str]:
    """The fields of a job as they are meant, however they are stored."""
    return {name: value.decode("utf-8", "replace") for name, value in Inspector(conn).job(job_id).items()}


def status_of(conn: redis.Redis, job_id: str) -> str | None:
    raw = conn.hget(f"rq:job:{job_id}", "status")
    return raw.decode() if raw else None


def events_of(conn: redis.Redis, job_id: str | None = None) -> list[dict[str, str]]:
    entries = [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in conn.xrange("rq:events")]
    return [entry for entry in entries if job_id is None or entry["job_id"] == job_id]


#: Fields that only say when somebody last looked.
_CLOCKS = {b"beat_ms", b"last_heartbeat", b"last", b"hold", b"declared_at", b"error_at", b"served_ms", b"cap_until", b"began"} | {
    b"carried_until",
}
_CLOCK_SCORES = ("rq:wip:", "rq:leases", "rq:schedulers", "rq:relays", "rq:cron:due", "rq:logs")


def everything(conn: redis.Redis, *, clocks: bool = False) -> dict[str, Any]:
    """All keys with their contents and whether they expire; leases, looks and clock fields are left out unless `clocks`."""
    found = {}
    for key, kind, left, content in sorted(everything_at_once(conn, "*"), key=lambda one: one[0]):
        if not clocks and kind == "hash":
            clock = {*_CLOCKS, b"at"} if key.startswith("rq:log:") else _CLOCKS
            content = {k: v for k, v in content.items() if k not in clock and not key.endswith("wildcards")}
        elif not clocks and kind == "zset" and key.startswith(_CLOCK_SCORES):
            content = [member for member, _ in content]
        found[key] = content, left >= 0
    return found


@contextmanager
def wire(conn: redis.Redis) -> Iterator[list[str]]:
    """The commands that this client sends meanwhile, by name; a login is none."""
    kind = conn.connection_pool.connection_class
    original, sent = kind.send_packed_command, list[str]()

    def send(self: Any, packed: Any, check_health: bool = True) -> Any:
        parts = [packed] if isinstance(packed, (bytes, str)) else packed
        raw = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
        if (name := raw.split(b"\r\n")[2].decode()) != "AUTH":
            sent.append(name)
        return original(self, packed, check_health)

    kind.send_packed_command = send
    try:
        yield sent
    finally:
        kind.send_packed_command = original
