"""A fleet goes from one Redis to a cluster: its keys are copied by the program in docs/cluster.md, while the fleet is suspended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion import Queue, Retry, StoreUnavailable
from fusion.settings import Settings, use_settings
from fusion.store.client.connections import connect
from fusion.store.layout.keys import Keys
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.conservation import check_conservation, runs_seen
from tests.faults.trouble.test_failover import ENV
from tests.jobs import basic
from tests.kit.clusters import PREFIX, ClusterOfTests
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.still import everything_at_once
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

KEYS = Keys(PREFIX)
DOC = ROOT / "docs" / "cluster.md"
pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def town(server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterOfTests]:
    monkeypatch.setenv("FUSION_PREFIX", PREFIX)
    use_settings(None)
    with contextlib.closing(ClusterOfTests(server_binary.path, replicas=False)) as cluster:
        yield cluster


def program(old: str, new: str) -> str:
    """Return the program of the docs, with these servers."""
    (found,) = [block for block in DOC.read_text().split("```python\n") if "def copy(" in block]
    text = found.partition("```")[0]
    for name, url in (("redis://old:6379/0", old), ("redis+cluster://node1:6379", new)):
        assert name in text
        text = text.replace(name, url)
    return text


def fusion(url: str, *words: str) -> str:
    """Run a command of Fusion."""
    command = [sys.executable, "run_worker.py", *words, "--url", url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_fleet_is_copied_while_it_is_suspended(private_redis: PrivateRedis, town: ClusterOfTests, tmp_path: Path) -> None:
    witness, old = tmp_path / "witness", private_redis.conn
    job = (str(witness), "ran")
    queue = Queue("q", old)
    fleet = Workers(private_redis.url, tmp_path)
    worker = fleet.start("q", env=ENV)
    ran = [queue.enqueue(basic.witness, *job).id for _ in range(5)]
    eventually(lambda: old.zcard(KEYS.finished("q")) == 5, why="the first have run")

    # 1. suspend, and end all but the producers
    fusion(private_redis.url, "suspend")
    parent, later = queue.enqueue(basic.witness, *job), queue.enqueue_in(60, basic.witness, *job)
    waiting = [
        *(queue.enqueue(basic.witness, *job).id for _ in range(100)),
        *(parent.id, later.id),
        queue.enqueue(basic.witness, *job, depends_on=parent).id,
        queue.enqueue(basic.witness, *job, unique_key="u", ttl=3600).id,
        *(queue.enqueue(basic.witness, *job, concurrency_key="k").id for _ in range(3)),
        queue.enqueue(basic.boom, retry=Retry(1)).id,
    ]
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0

    # 2. the old Redis refuses each write
    old.config_set("min-replicas-to-write", 99)
    with pytest.raises(StoreUnavailable) as caught:
        queue.enqueue(basic.witness, *job)
    assert caught.value.nothing_written

    # 3. copy, and compare
    subprocess.run([sys.executable, "-c", program(private_redis.url, town.url)], cwd=ROOT, check=True, timeout=60)
    new = connect(town.url, settings=Settings.load())
    there, copied = ({key: rest for key, *rest in everything_at_once(client, "*")} for client in (old, new))
    assert len(there) > 100
    assert copied.keys() == there.keys()
    for key, (kind, left, content) in there.items():
        assert (copied[key][0], copied[key][2]) == (kind, content)
        assert (copied[key][1] < 0) == (left < 0)
        assert abs(copied[key][1] - left) < 30_000

    # 4. go on at the cluster
    fleet = Workers(town.url, tmp_path / "new")
    (tmp_path / "new").mkdir()
    waiting.append(Queue("q", new).enqueue(basic.witness, *job).id)
    worker = fleet.start("q", env=ENV)
    assert new.zcard(KEYS.queue("q")) > 100, "it is still suspended"
    fusion(town.url, "resume")
    fusion(town.url, "reschedule", later.id, "+1s")
    eventually(
        lambda: (
            not any(
                new.zcard(key) for key in (KEYS.queue("q"), KEYS.wip("q"), KEYS.scheduled, KEYS.deferred("q"), KEYS.blocked("q"))
            )
        ),
        timeout=90,
        interval=0.1,
        why="all has run",
    )
    states = check_conservation(new, [*ran, *waiting], KEYS)
    failed = waiting[-2]
    assert {job_id for job_id, state in states.items() if state != "finished"} == {failed}
    assert runs_seen(witness) == dict.fromkeys({*ran, *waiting} - {failed}, 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
