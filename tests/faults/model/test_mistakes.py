"""The model notices what it is there to notice: with a mistake in the Lua text the same walk fails."""

from __future__ import annotations

import pytest
import redis

from tests.faults.model.scripts import Mistake
from tests.faults.model.walk import finds

_COMMIT = ("turn",)

MISTAKES = (
    Mistake("anybody's outcome is taken", _COMMIT, "if job.execution_id ~= exec then return 'stale', false end", "", True),
    Mistake("a lost job keeps its execution", ("reap",), "redis.call('HDEL', key, 'execution_id')", "", True),
    Mistake("a claim without a lease", _COMMIT, "redis.call('ZADD', wip_key(queue), LEASE_END, id)", ""),
    Mistake(
        "a claim removes before it adds, and stops between",
        _COMMIT,
        "redis.call('ZADD', wip_key(queue), LEASE_END, id)",
        "redis.call('ZREM', ready_key(queue), id)\nif tonumber(deliveries) == 1 then return false end\n"
        "redis.call('ZADD', wip_key(queue), LEASE_END, id)",
    ),
    Mistake(
        "an outcome sent twice counts twice",
        _COMMIT,
        "if job.status ~= 'started' then return job.status == 'failed' and kind ~= 'failed' and 'failed' or 'ok', false end",
        "",
        True,
    ),
    Mistake(
        "promote takes out before it puts in, and stops between",
        ("promote",),
        "local function move(id, job)\nlocal key = job_key(id)\nlocal status, queue,",
        "local function move(id, job)\nredis.call('ZREM', K_scheduled, id)\nif moved > 0 then return end\n"
        "local key = job_key(id)\nlocal status, queue,",
    ),
    Mistake("a turn sent again claims again", _COMMIT, "if token == last then", "if false then", True),
    Mistake(
        "an enqueue sent again is another job",
        ("enqueue",),
        "local resent = status and (nonce or func and id) == sent",
        "local resent = false",
    ),
    Mistake(
        "blocked jobs take no room",
        ("enqueue",),
        " + redis.call('ZCARD', P .. 'blocked:' .. queue)",
        "",
    ),
    Mistake("a requeued job keeps its old place", ("requeue",), "elseif A_keep_place == '1' then", "elseif true then"),
    Mistake(
        "a transition without its event",
        _COMMIT,
        "'released', id, queue, job.log_tag, 'worker', worker, 'reason', reason)",
        "'released', id, '_callbacks', job.log_tag)",  # of a delivery's steps there are no events
    ),
    Mistake(
        "a slot is not handed on",
        ("turn",),
        "local stood = redis.call('ZREM', holders_key(name), id) == 1 or redis.call('ZREM', queue_up_key(name), id) == 1",
        "local stood = redis.call('ZREM', holders_key(name), id) == 2 or redis.call('ZREM', queue_up_key(name), id) == 2",
    ),
    Mistake(
        "a job that ends keeps its slot",
        ("cancel", "turn"),
        "local stood = redis.call('ZREM', holders_key(name), id) == 1 or",
        "local stood =",
    ),
    Mistake(
        "an admitted job comes out of order",
        ("turn",),
        "free == 1 and '0' or free - 1, 'REV', 'WITHSCORES')",
        "free == 1 and '0' or free - 1, 'WITHSCORES')",
    ),
    Mistake(
        "an admitted job goes to the front of its queue",
        ("turn",),
        "if not behind then took = redis.call('ZADD', holders_key(name), score, id) end\nredis.call('HSET', key, 'status', 'queued')",
        "took = redis.call('ZADD', holders_key(name), score, id)\nredis.call('ZADD', ready_key(queue), score + 0.25, id)\n"
        "redis.call('HSET', key, 'status', 'queued')",
    ),
    Mistake(
        "a better newcomer waits behind one that has not started",
        ("enqueue",),
        "if not (best[1] and tonumber(best[2]) > tonumber(worst[2])) then return end",
        "if true then return end",
    ),
    Mistake("a limit is raised and no job admitted", ("set_limit",), ", A_key)\nreturn before", ", 'another')\nreturn before"),
    Mistake(
        "a token is spent at arrival",
        ("enqueue",),
        "redis.call('ZADD', held, score, id)\nelseif string.find",
        "redis.call('ZADD', held, score, id)\nlocal interval = string.match(rate or '', '^1/(%d+)/')\nif interval then redis.call('HSET', "
        "limit_key(name), 'tat', string.format('%.17g', now_s * 1000000 + now_us + interval * 1000)) end\nelseif string.find",
    ),
    Mistake(
        "a start spends no token",
        ("turn",),
        "if not interval then return true end",
        "if true then return true end",
    ),
    Mistake(
        "a paused key goes on",
        ("turn", "enqueue", "cancel", "promote"),
        "if opens then\nknown = { limit = 0,",
        "if false then\nknown = { limit = 0,",
    ),
    Mistake(
        "a lost job gives up its slot",
        ("reap", "prune"),
        "redis.call('ZADD', holders_key(name), place_in_key(key, queue, score), id)\n",
        "redis.call('ZREM', holders_key(name), id)\n",
    ),
    Mistake(
        "a newcomer's fair turn is the first there ever was",
        ("enqueue",),
        "turns.clock = tonumber(best) or score_of(queue, class, seq)",
        "turns.clock = first",
    ),
    Mistake("a requeued job stays in the group of its failure", ("requeue",), "redis.call('ZREM', jobs, id)", ""),
    Mistake(
        "a group does not count what is set aside",
        ("quarantine",),
        "redis.call('HINCRBY', failure_key(group), 'quarantined', 1)",
        "",
    ),
    Mistake(
        "what failed twice is counted twice",
        ("requeue",),
        "if queue then count_failure(group, queue, quarantined, -1) else",
        "if queue then return true else",
    ),
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "-"))
def test_a_walk_finds(admin: redis.Redis, mistake: Mistake) -> None:
    assert finds(admin, mistake)
