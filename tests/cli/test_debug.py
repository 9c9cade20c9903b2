"""`debug script`: what Redis receives."""

from __future__ import annotations

import hashlib

import redis

from fusion.store.write.broker import Broker
from tests.cli.conftest import Invoke
from tests.kit.hands import new


def test_a_script_is_printed_as_redis_receives_it(invoke: Invoke, conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.enqueue("q", [new("a")], "n")
    version = ".".join(map(str, broker._server_version()))
    printed = invoke("debug", "script", "enqueue", "--server", version).stdout
    assert conn.script_exists(hashlib.sha1(printed.encode()).hexdigest()) == [True]  # noqa: S324 - the server's own naming
    assert "\n--@enqueue.lua:" in printed
    assert invoke("debug", "script", "turn", "--server", "6.2").stdout.startswith("redis.call('DEL', \"rq:oom\")\n")
    assert '"shop:job:"' in invoke("debug", "script", "cancel", "--prefix", "shop:").stdout


def test_wrong_arguments_are_named(invoke: Invoke) -> None:
    assert "no script 'turm'; did you mean 'turn'?" in invoke("debug", "script", "turm", code=2).stderr
    assert "no script 'xyz'; there are: add_parents, " in invoke("debug", "script", "xyz", code=2).stderr
    assert "'new' is not a version; use 6.2 or 7.0" in invoke("debug", "script", "turn", "--server", "new", code=2).stderr
