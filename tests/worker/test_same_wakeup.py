"""A doorbell's token and an order come in one wake-up: the order is obeyed first, and no job is claimed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.jobs import basic
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import WorkerProcess, Workers
from tests.worker.test_quiet import listening, name_of
from tests.worker.test_settings import worker_hash
from tests.worker.throttled import PROGRAM


def blocked(conn: redis.Redis) -> int:
    return int(conn.info("clients")["blocked_clients"])


def _obeyed(worker: WorkerProcess, conn: redis.Redis, told: str) -> bool:
    if told in ("TSTP", "quiet"):
        return worker_hash(conn, worker).get("quiet") == "1"
    if told == "memory":
        return worker_hash(conn, worker).get("throttled") == "RAM 99.0 %"
    return worker.process.poll() is not None


@pytest.mark.parametrize("flags", [(), long_case(("--horses", "1"))], ids=["process per job", "pool"])
@pytest.mark.parametrize("told", ["TERM", "TSTP", "shutdown", "quiet", "nothing"])
def test_an_order_beside_a_token_comes_first(
    workers: Workers, conn: redis.Redis, tmp_path: Path, told: str, flags: tuple[str, ...]
) -> None:
    here, memory = tmp_path / "armed" / "here", tmp_path / "memory"
    memory.write_text("10")
    env = {
        "FUSION_IDLE_WAIT": "20",
        "FUSION_FAILPOINTS": f"promote.before=wait:{here}",
        "MEMORY_FILE": str(memory),
        "FUSION_MEMORY_CHECK_INTERVAL": "0.2",
    }
    if told == "memory":
        worker = workers.start("sms", env=env, program=PROGRAM)
    else:
        worker = workers.start("sms", *flags, env=env)
    eventually(lambda: blocked(conn) == 1 and listening(conn, worker), why="it waits")
    here.parent.mkdir()
    eventually(here.exists, why="its loop stands still")
    job = Queue("sms").enqueue(basic.noop)
    eventually(lambda: blocked(conn) == 0, why="it has been sent the token")
    if told in ("TERM", "TSTP"):
        worker.signal(getattr(signal, f"SIG{told}"))
    elif told == "memory":
        memory.write_text("99")
    elif told != "nothing":
        conn.publish(f"rq:pubsub:{name_of(worker, conn)}", json.dumps({"command": told}))
    here.unlink()
    if told == "nothing":
        eventually(lambda: status_of(conn, job.id) == "finished", why="the token alone brings the job")
        return
    eventually(lambda: _obeyed(worker, conn, told), why=worker.output)
    assert (status_of(conn, job.id), field(conn, job.id, "deliveries") or "0") == ("queued", "0")
