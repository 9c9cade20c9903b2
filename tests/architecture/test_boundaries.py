"""Who may talk to Redis, and what the surrounding service may use of Fusion."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusion
from tests.architecture.source import calls, imports, modules, parse, strings

#: Redis commands whose redis-py name means nothing else in Python. `get`, `set`, `expire`, ... do, and are left to review.
COMMANDS = frozenset(
    (
        "blmove blpop brpop bzpopmax bzpopmin config_get config_set dbsize eval_ro evalsha evalsha_ro "
        "execute_command fcall flushall flushdb from_url hdel hexists hget hgetall hincrby hkeys hlen hmget hmset hscan "
        "hscan_iter hset hsetnx hvals incrby lindex llen lmove lpop lpos lpush lrange lrem ltrim mget mset parse_response "
        "persist pexpire pexpireat pipeline psetex pttl publish register_script rpop rpoplpush rpush sadd scan_iter scard "
        "script_exists script_load sdiff setex setnx sismember smembers srandmember srem sscan_iter sunion xack xadd "
        "xautoclaim xdel xgroup_create xlen xrange xread xreadgroup xrevrange xtrim zadd zcard zcount zincrby zpopmax "
        "zpopmin zrange zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zrevrank "
        "zscan_iter zscore zunionstore "
    ).split()
)
#: Below these names lies what may change without notice; the surrounding service keeps out.
INTERNAL = (
    "fusion.cli",
    "fusion.execution",
    "fusion.executors",
    "fusion.forkserver",
    "fusion.runtime",
    "fusion.scheduler",
    "fusion.store",
    "fusion.supervisor",
    "fusion.worker",
)
#: What others may import of redis-py: the type of a connection that is handed through, and the errors to catch.
HANDED_THROUGH = {("redis", "Redis"), ("redis.asyncio", "Redis")}
#: The one place outside the store that knows the prefix: its default.
KNOWS_THE_PREFIX = Path("fusion/kernel/defaults.py")


def redis_outside_the_store(path: Path, tree: ast.AST) -> Iterator[str]:
    for line, text in strings(tree):
        if "rq:" in text and path != KNOWS_THE_PREFIX:
            yield f"{path}:{line}: {text!r} names a Redis key; add it to fusion/store/layout/keys.py"
    for line, name in calls(tree):
        if name in COMMANDS:
            yield f"{path}:{line}: {name}() looks like a Redis command; add a method to fusion/store instead"
        if name == "Redis":
            yield f"{path}:{line}: a connection is made here; use fusion.store.client.connections"
    for line, module, name in imports(tree):
        client = module.split(".")[0] in {"redis", "hiredis", "valkey"}
        if client and module != "redis.exceptions" and (module, name) not in HANDED_THROUGH:
            yield f"{path}:{line}: a Redis client is imported ({module} {name}); only fusion/store may do that"


def internals_used(path: Path, tree: ast.AST) -> Iterator[str]:
    for line, module, name in imports(tree):
        if any(f"{target}.".startswith(f"{inner}.") for inner in INTERNAL for target in (module, f"{module}.{name}")):
            yield f"{path}:{line}: {module} is internal to Fusion; use what `fusion` exports"
        if module == "fusion" and name not in fusion.__all__ and f"fusion/{name}.py" not in {str(p) for p in modules("fusion")}:
            yield f"{path}:{line}: fusion exports no {name!r}"


def test_only_the_store_talks_to_redis() -> None:
    outside = [path for path in modules("fusion", "tasks", "wrappers") if path.parts[:2] != ("fusion", "store")]
    assert outside
    assert [problem for path in outside for problem in redis_outside_the_store(path, parse(path))] == []


def test_tasks_and_wrappers_use_the_public_api_only() -> None:
    service = modules("tasks", "wrappers")
    assert service
    assert [problem for path in service for problem in internals_used(path, parse(path))] == []


@pytest.mark.parametrize(
    "code",
    [
        "KEY = 'rq:queue:sms'",
        "KEY = f'rq:job:{job_id}'",
        "KEY = b'rq:seq'",
        "connection.zadd(key, {job_id: 2})",
        "with r.pipeline() as pipe: pipe.get(key)",
        "connection = Redis(host='localhost')",
        "from redis.connection import ConnectionPool",
        "import hiredis",
    ],
)
def test_redis_outside_the_store_is_noticed(code: str) -> None:
    assert list(redis_outside_the_store(Path("fusion/queue.py"), ast.parse(code)))


def test_docstrings_and_ordinary_methods_are_no_redis() -> None:
    code = '"""Reads rq:queue:sms."""\nvalue = settings.get("x")\nbroker.enqueue(value)\nfrom redis import Redis'
    assert list(redis_outside_the_store(Path("fusion/queue.py"), ast.parse(code))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import fusion.store.write.broker",
        "from fusion import store",
        "from fusion.worker.worker import Worker",
        "from fusion import Nothing",
    ],
)
def test_a_service_that_uses_internals_is_noticed(code: str) -> None:
    assert list(internals_used(Path("tasks/sms.py"), ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["from fusion import Queue, get_current_job", "from fusion.decorators import job", "import requests"]
)
def test_the_public_api_is_free_to_use(code: str) -> None:
    assert list(internals_used(Path("tasks/sms.py"), ast.parse(code))) == []


@pytest.mark.parametrize("name", fusion.__all__)
def test_every_name_of_the_package_has_its_home(name: str) -> None:
    assert getattr(fusion, name) is not None
