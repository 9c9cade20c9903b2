"""The checker of what must hold whatever died: nothing lost, nothing twice, nothing stuck, nothing left over.

It reads Redis and the witness files that tasks write, so that what Redis says of runs is held against what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import redis

from fusion.store.layout.keys import Keys
from fusion.store.layout.names import LIST_QUEUES
from tests.kit.promises import PromiseBroken
from tests.kit.still import Still
from tests.store.batch_hands import batch_faults
from tests.store.limits_hands import faults

TERMINAL = {"finished", "failed", "canceled", "stopped"}
#: What an execution leads to, by its event.
_SETTLED = ("completed", "retry", "abandoned", "displaced", "released", "held")


def memberships(conn: redis.Redis | Still, keys: Keys | None = None) -> dict[str, list[str]]:
    """For each job id the states whose sets hold it (a LIST queue's inbox counts as queued)."""
    keys = keys or Keys()
    found: dict[str, list[str]] = {}

    def add(status: str, members: Iterable[bytes]) -> None:
        for member in members:
            found.setdefault(member.decode(), []).append(status)

    for queue_key in conn.smembers(keys.queues):
        queue = keys.name_of_queue(queue_key.decode())
        add("queued", conn.zrange(keys.fifo(queue), 0, -1))
        if queue in LIST_QUEUES:
            struck = dict(conn.zrange(keys.inbox(queue), 0, -1, withscores=True))
            left = struck.get(b"", 0)
            add(
                "queued",
                (
                    one
                    for position, one in enumerate(conn.lrange(keys.queue(queue), 0, -1), 1)
                    if left + position > struck.get(one, -1) and b">" + one not in struck
                ),
            )
        elif conn.type(keys.queue(queue)) != b"list":  # of stock RQ's
            add("queued", conn.zrange(keys.queue(queue), 0, -1))
        add("started", conn.zrange(keys.wip(queue), 0, -1))
        for status in ("finished", "canceled", "stopped", "deferred", "blocked"):
            add(status, conn.zrange(getattr(keys, status)(queue), 0, -1))
    add("failed", conn.zrange(keys.failed, 0, -1))
    add("scheduled", conn.zrange(keys.scheduled, 0, -1))
    return found


def check_conservation(
    conn: redis.Redis, accepted: Iterable[str], keys: Keys | None = None, *, grouped: bool = True, still: Still | None = None
) -> dict[str, str]:
    """Assert that each accepted id is in exactly one set and that its hash says the same, of all queues what `check_totals` does, and of
    failed jobs what `check_groups` does. `grouped`: False if some failed in a version without groups, and nobody cleaned since.
    `still`: a copy of all keys as they are. Returns id -> status."""
    keys = keys or Keys()
    look = still or conn
    found = memberships(look, keys)
    wrong, states = [], {}
    for job_id in accepted:
        raw = look.hget(keys.job(job_id), "status")
        status = raw.decode() if raw else None
        if status is None or found.get(job_id) != [status]:
            wrong.append(f"{job_id}: hash says {status}, sets say {found.get(job_id)}")
        states[job_id] = status or "?"
        if status == "blocked":
            wrong += _why_blocked_in_vain(look, keys, job_id)
    _refuse("not in exactly one state", wrong)
    check_totals(conn, keys)
    if grouped:
        check_groups(look, keys)
    return states


#: What came in, what went out, and what is there, of each queue: all read at one moment.
_TOTALS = """
local found, P = {}, ARGV[1]
local function of(queue) found[queue] = found[queue] or { 0, 0, 0 }; return found[queue] end
local IN = { enqueued = true, requeued = true }
for _, key in ipairs(redis.call('KEYS', P .. 'totals:*')) do
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local what = string.match(flat[i], '^[a-z]+')
    local at = of(string.sub(key, #P + 8))
    at[IN[what] and 1 or 2] = at[IN[what] and 1 or 2] + flat[i + 1]
  end
end
local LIVE = { queued = true, started = true, scheduled = true, deferred = true, blocked = true }
for _, key in ipairs(redis.call('KEYS', P .. 'job:*')) do
  local job = redis.pcall('HMGET', key, 'status', 'seq', 'origin')
  if not job.err and LIVE[job[1]] and job[2] and job[3] then of(job[3])[3] = of(job[3])[3] + 1 end
end
for _, kind in ipairs({ 'queue:', 'fifo:', 'wip:' }) do -- a record that vanished: who meets its entry says that it failed
  for _, key in ipairs(redis.call('KEYS', P .. kind .. '*')) do
    local flat = key ~= P .. 'queue:failed' and redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES') or {}
    for i = 1, #flat, 2 do
      local known = redis.pcall('HGET', P .. 'job:' .. flat[i], 'status')
      local there = of(string.sub(key, #P + #kind + 1))
      local score = tonumber(flat[i + 1])
      local ours = kind == 'wip:' and score > 1e11 and score < 1e15 or kind ~= 'wip:' and score % 1 ~= 0
      if type(known) ~= 'string' and ours then there[3] = there[3] + 1 end
    end
  end
end
local answer = {}
for queue, three in pairs(found) do answer[#answer + 1] = { queue, unpack(three) } end
return answer
"""


def check_totals(conn: redis.Redis, keys: Keys | None = None) -> None:
    """Assert of each queue's lifetime counters: what came in is what went out, and what is there."""
    rows = conn.eval(_TOTALS, 0, (keys or Keys()).prefix)
    wrong = [
        f"{queue.decode(errors='replace')}: {came_in} came in, {went_out} went out, {there} are there"
        for queue, came_in, went_out, there in rows
        if came_in != went_out + there
    ]
    _refuse("counted wrong", wrong)


def _why_blocked_in_vain(conn: redis.Redis | Still, keys: Keys, job_id: str) -> list[str]:
    """A job waits in the set that it names, and that set is listed, or nobody would come for it."""
    name = (conn.hget(keys.job(job_id), "waits_in") or b"").decode()
    if name.startswith("limit:"):  # settling a key comes for them, no worker
        there = conn.zscore(keys.limit_waiting(name.removeprefix("limit:")), job_id) is not None
        return [] if there else [f"{job_id}: blocked, and does not wait for {name!r}"]
    if conn.zscore(keys.waiting(name), job_id) is None:
        return [f"{job_id}: blocked, and not in the set {name!r} that it names"]
    return [] if conn.hexists(keys.waits, name) else [f"{job_id}: waits in {name!r}, which is not listed"]


def check_ended(
    conn: redis.Redis, accepted: Iterable[str], runs: Mapping[str, int] | None = None, keys: Keys | None = None
) -> dict[str, str]:
    """Assert of jobs that had their time: conservation, and each has ended, with a reason if it failed; with `runs` (what a witness
    saw of each) also that what finished has run, and that nothing ran more often than its failures and losses explain. Returns
    id -> status."""
    keys = keys or Keys()
    states = check_conservation(conn, accepted, keys)
    told = _told(conn, keys)
    wrong = []
    for job_id, status in states.items():
        events = told.get(job_id, Counter())
        if status not in TERMINAL:
            wrong.append(f"{job_id} is stuck: {status}, after {dict(events)}")
        if status == "failed" and not (conn.hget(keys.job(job_id), "exc_info") or conn.hget(keys.job(job_id), "reason")):
            wrong.append(f"{job_id} failed for no reason")
        ends = sum(events[event] for event in ("completed", "failed", "canceled", "stopped", "expired"))
        if ends > 1 + events["requeued"]:
            wrong.append(f"{job_id} ended {ends} times: {dict(events)}")
        settled = sum(events[event] for event in _SETTLED)
        if settled > events["processing"]:
            wrong.append(f"{job_id}: {settled} outcomes of {events['processing']} executions: {dict(events)}")
        if runs is None:
            continue
        bound = 1 + sum(events[event] for event in ("retry", "abandoned", "displaced", "released", "requeued"))
        if runs.get(job_id, 0) > bound:
            wrong.append(f"{job_id} ran {runs[job_id]} times, {bound} are explained: {dict(events)}")
        if status == "finished" and not runs.get(job_id):
            wrong.append(f"{job_id} finished and never ran")
    _refuse("not as they should be", wrong)
    return states


def runs_seen(*paths: Path, word: str = "") -> Counter[str]:
    """Runs of each job in witness files (`<word> <job id> <pid>` a line, as `tests.jobs.basic.witness` writes them)."""
    found: Counter[str] = Counter()
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            said, job_id, _ = line.split()
            found[job_id] += word in ("", said)
    return found


def dead_entries(conn: redis.Redis, keys: Keys | None = None) -> list[str]:
    """Workers that stand in the list and give no sign of life, or have no entry of their own."""
    keys = keys or Keys()
    found = []
    for raw in conn.smembers(keys.workers):
        seconds, micros = conn.time()
        beat, lease = conn.hmget(raw, "beat_ms", "lease_ms")
        if beat is None or seconds * 1000 + micros // 1000 - int(beat) > int(lease or 0):
            found.append(raw.decode())
    return sorted(found)


def leftovers(conn: redis.Redis, keys: Keys | None = None) -> list[str]:
    """Keys that nobody needs any more, or that nobody knows, each with why. Doorbells may have a token."""
    keys = keys or Keys()
    known = {getattr(keys, name) for kind in Keys.__mro__ for name, value in vars(kind).items() if isinstance(value, property)}
    known |= {key.decode() for key in conn.smembers(keys.queues)}
    known |= {key.decode() for key in conn.smembers(keys.workers)}
    in_sets = memberships(conn, keys)
    return [
        f"{key}: {why}"
        for key in sorted(raw.decode() for raw in conn.scan_iter(f"{keys.prefix}*"))
        if key not in known and (why := _why_left(conn, keys, key, in_sets))
    ]


def _why_in_group(conn: redis.Redis, keys: Keys, name: str) -> str:
    """Of a failure group: it is in the list, and holds failed jobs of its own, each counted under its queue."""
    group, _, what = name.partition(":")
    if what.isdecimal():
        return "" if conn.ttl(f"{keys.failure(group)}:{what}") >= 0 else "no end"
    if conn.zscore(keys.failures, group) is None:
        return "not in the list"
    return "; ".join(group_faults(conn, group, keys)) if not what else ""


def group_faults(conn: redis.Redis | Still, group: str, keys: Keys | None = None) -> list[str]:
    """What is wrong with a failure group."""
    keys = keys or Keys()
    wrong, queues, quarantined = [], Counter[bytes](), 0
    ids = [raw.decode() for raw in conn.zrange(keys.failure_jobs(group), 0, -1)]
    for job_id in ids:
        job = conn.hmget(keys.job(job_id), "status", "failure_group", "original_queue", "origin", "quarantined")
        if job[:2] != [b"failed", group.encode()]:
            wrong.append(f"{job_id} is {job[0]} and names {job[1]}")
        queues[job[2] or job[3] or b""] += 1
        quarantined += job[4] is not None
    counted = {name: int(count) for name, count in conn.zrange(keys.failure_queues(group), 0, -1, withscores=True)}
    if counted != queues:
        wrong.append(f"queues {dict(queues)}, counted {counted}")
    about = {name.decode(): value.decode() for name, value in conn.hgetall(keys.failure(group)).items()}
    if int(about.get("quarantined", 0)) != quarantined:
        wrong.append(f"{quarantined} quarantined, counted {about.get('quarantined')}")
    if ids and about.get("example") not in ids:
        wrong.append(f"the example {about.get('example')} is none of its jobs")
    if (conn.zscore(keys.failures_empty, group) is not None) == bool(ids):
        wrong.append(f"holds {len(ids)}, and the list of empty ones says otherwise")
    return wrong


def check_groups(conn: redis.Redis | Still, keys: Keys | None = None) -> None:
    """Assert that each failed job stands in exactly one failure group, and each group holds but failed jobs of its own."""
    keys = keys or Keys()
    groups = [raw.decode() for raw in conn.zrange(keys.failures, 0, -1)]
    wrong = [f"{group}: {why}" for group in groups for why in group_faults(conn, group, keys)]
    found = Counter(raw.decode() for group in groups for raw in conn.zrange(keys.failure_jobs(group), 0, -1))
    for raw in conn.zrange(keys.failed, 0, -1):
        status, queue = conn.hmget(keys.job(raw.decode()), "status", "origin")
        if status == b"failed" and not (queue or b"").startswith(b"_") and found[raw.decode()] != 1:
            wrong.append(f"{raw.decode()} failed, and is in {found[raw.decode()]} groups")
    _refuse("not in the group of its failure", wrong)


def _why_left(conn: redis.Redis, keys: Keys, key: str, in_sets: Mapping[str, list[str]]) -> str:
    kind, _, name = key.removeprefix(keys.prefix).partition(":")
    if kind == "job" and name.endswith((":children", ":dependencies", ":dependents", ":parents")):
        return _why_kin(conn, keys, *name.rsplit(":", 1))
    if kind == "job":
        return "" if name in in_sets else "a record in no set"
    if kind == "wip":
        stale = [raw.decode() for raw in conn.zrange(key, 0, -1) if conn.hget(keys.job(raw.decode()), "status") != b"started"]
        return f"leases of {stale}" if stale else ""
    if kind == "worker":
        return _why_held(conn, keys, key, name)
    if kind == "waits":
        stale = [
            raw.decode() for raw in conn.zrange(key, 0, -1) if conn.hget(keys.job(raw.decode()), "waits_in") != name.encode()
        ]
        return f"holds {stale}, which wait elsewhere" if stale else ""
    if kind == "limit":
        return "" if conn.zscore(keys.limits, name) is not None else "not in the list"
    if kind == "gate":
        return "" if conn.hexists(keys.gates, name) else "of a queue for which nothing is set"
    if kind == "history":
        return "" if name in ("queues", "functions") or conn.ttl(key) >= 0 else "no end"
    if kind == "limits":
        return "; ".join(faults(conn, name.partition(":")[2]))
    if kind == "unique":
        owner = (conn.get(key) or b"").decode()
        return "" if conn.ttl(key) >= 0 or not _has_ended(conn, keys, owner) else f"of {owner}, which has ended"
    if kind == "operation":
        return "" if conn.zscore(keys.operations, name.partition(":")[0]) is not None else "not in the list"
    if kind in ("batch", "batches"):
        return "; ".join(batch_faults(conn))
    if kind == "wake":
        return "more than one token" if conn.type(key) == b"list" and conn.llen(key) > 1 else ""
    if key.startswith(keys.said("")):
        return "" if conn.ttl(key) >= 0 else "no end"
    if key.startswith(keys.scheduler("")):
        return "" if conn.zscore(keys.schedulers, keys.name_of_scheduler(key)) is not None else "not in the list"
    if kind == "failure":
        return _why_in_group(conn, keys, name)
    if kind == "graph":
        known = conn.zscore(keys.graphs, name), conn.zscore(keys.releasing, f"g {name}"), conn.zscore(keys.releasing, f"x {name}")
        return "" if any(score is not None for score in known) else "of a graph that nobody knows"
    if kind == "trash":
        return "" if conn.zscore(keys.trash, name.removeprefix("job:")) is not None else "not in the list"
    if kind == "work":
        return "" if conn.hexists(keys.wildcards, name) else "of a wildcard that nobody named"
    if kind == "relay":
        return "" if conn.zscore(keys.relays, name) is not None else "not in the list"
    return (
        ""
        if kind
        in (
            "fifo",
            "finished",
            "canceled",
            "stopped",
            "deferred",
            "blocked",
            "paused",
            "cron",
            "sink",
            "events",
            "probation",
            "totals",
            "flow",
        )
        else "unknown"
    )


def _why_kin(conn: redis.Redis, keys: Keys, job_id: str, what: str) -> str:
    """Of what is written down of a job's parents and children."""
    if what == "parents":
        return "" if conn.exists(keys.job(job_id)) or conn.zscore(keys.releasing, f"p {job_id}") else "of a job that is gone"
    if what == "dependents":
        return "" if conn.exists(keys.job(job_id)) else "of a job that is gone"
    if what == "dependencies":
        return "" if conn.hget(keys.job(job_id), "status") == b"deferred" else "of a job that waits for nobody"
    stale = [raw.decode() for raw in conn.zrange(keys.children(job_id), 0, -1) if _has_ended(conn, keys, raw.decode())]
    return f"names {stale}, which have ended" if stale else ""


def _has_ended(conn: redis.Redis, keys: Keys, job_id: str) -> bool:
    return (conn.hget(keys.job(job_id), "status") or b"finished").decode() in TERMINAL


def _why_held(conn: redis.Redis, keys: Keys, key: str, name: str) -> str:
    """Of a worker's entry that is not in the list, or of the index of what a worker holds."""
    if not name.endswith(":jobs"):
        return "a worker that is not in the list"
    for job_id, execution in conn.hgetall(key).items():
        if conn.hmget(keys.job(job_id.decode()), "status", "execution_id") != [b"started", execution]:
            return f"names {job_id.decode()}, which it does not run"
    return "" if conn.sismember(keys.workers, key.removesuffix(":jobs")) else "of a worker that is not in the list"


def _told(conn: redis.Redis, keys: Keys) -> dict[str, Counter[str]]:
    """How often each job had each event; `requeued` for those that a person put back, or that were repeated."""
    found: dict[str, Counter[str]] = {}
    written, count = int(conn.hget(keys.events_meta, "n") or 0), 0
    for event, job_id, fields in _events(conn, keys):
        count += 1
        if b"source" in fields:  # what a task says of itself
            continue
        of_job = found.setdefault(job_id, Counter())
        of_job[event] += 1
        of_job["requeued"] += fields.get(b"reason") in (b"requeued", b"repeated")
    assert count >= written, f"{count} of {written} events are left: check sooner, or keep more of them (events_cap)"
    return found


def _events(conn: redis.Redis, keys: Keys) -> Iterator[tuple[str, str, dict[bytes, bytes]]]:
    last = "-"
    while rows := conn.xrange(keys.events, last, count=1000):
        for entry, fields in rows:
            yield fields[b"event"].decode(), fields[b"job_id"].decode(), fields
            last = f"({entry.decode()}"


def _refuse(what: str, wrong: list[str]) -> None:
    if wrong:
        raise PromiseBroken(f"{len(wrong)} job(s) {what}:\n" + "\n".join(wrong[:20]))
