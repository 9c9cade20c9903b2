"""Producers, workers and the command line over TLS, as a user with no more rights than it needs."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import trustme

from fusion import Connection, FailedQueue, Queue, Retry
from fusion.settings import Settings, use_settings
from fusion.store.client.connections import connect
from fusion.store.layout.acl import acl_rules
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.process import ROOT
from tests.kit.servers import SpawnedServer, TLSFront, closing_all
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

PASSWORD = "p w/%:@"  # noqa: S105 - a url must quote all of it


@dataclass
class Secured:
    """A Redis that lets in `fusion` alone, over TLS, and what to tell a client about it."""

    admin: redis.Redis
    front: TLSFront
    ca_file: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "FUSION_REDIS_URL": f"rediss://fusion@localhost:{self.front.port}/1",
            "FUSION_REDIS_PASSWORD": PASSWORD,
            "FUSION_REDIS_SSL_CA_CERTS": str(self.ca_file),
        }


@pytest.fixture
def secured(server_binary: ServerBinary, tmp_path: Path) -> Iterator[Secured]:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with closing_all() as keep:
        server = SpawnedServer(server_binary.path)
        keep(server)
        admin = redis.Redis.from_url(f"{server.url}?db=1", protocol=2)
        # a user that had every right keeps none but these
        admin.execute_command("ACL", "SETUSER", "fusion", "on", f">{PASSWORD}", "~*", "&*", "+@all", *acl_rules().split())
        admin.execute_command("ACL", "SETUSER", "default", "off")
        front = TLSFront(context, server.socket)
        keep(front)
        yield Secured(admin, front, ca_file)
        admin.close()


@pytest.fixture
def secured_workers(secured: Secured, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(secured.env["FUSION_REDIS_URL"], tmp_path)
    yield found
    found.stop()


@pytest.fixture
def producer(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    for name, value in secured.env.items():
        monkeypatch.setenv(name, value)
    use_settings(None)
    with Connection() as conn:
        yield conn


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command line with this environment on top of the test's."""
    return subprocess.run(
        [sys.executable, "run_worker.py", *args], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=30
    )


@pytest.mark.long
@pytest.mark.timeout(120)
def test_everything_works_with_the_least_rights(
    secured: Secured, secured_workers: Workers, producer: redis.Redis, tmp_path: Path
) -> None:
    short = {**secured.env, "FUSION_LEASE": "1", "FUSION_REAP_INTERVAL": "0.1", "FUSION_MAINTENANCE_INTERVAL": "0.1"}
    queue, gate = Queue("sms"), tmp_path / "gate"
    secured_workers.start("sms", env=short)
    good = queue.enqueue(basic.add, 1, 2)
    noted = queue.enqueue(basic.progress, 2)
    again = queue.enqueue(basic.boom, retry=Retry(1))
    first = Queue("scheduler").enqueue(basic.noop)
    producer.hset("rq:job:outsider", "data", '["tests.jobs.basic.noop", null, [], {}]')
    producer.rpush("rq:queue:scheduler", "outsider")
    assert (good.wait(20), good.result) == ("finished", 3)
    assert noted.wait(20) == "finished"
    assert (again.wait(20), again.attempts) == ("failed", 2)
    # a worker dies, another takes its job
    gate.touch()
    victim = secured_workers.start("email", env=short)
    lost = Queue("email").enqueue(basic.until_gone, str(gate), str(tmp_path / "seen"))
    eventually((tmp_path / "seen").exists)
    victim.kill()
    heir = secured_workers.start("email", "scheduler", "x*", env=short)
    gate.unlink()
    assert (lost.wait(20), first.wait(20)) == ("finished", "finished")
    # people and tools
    FailedQueue().requeue(again.id)
    waiting = Queue("pn").enqueue_many([Queue.prepare_data(basic.noop) for _ in range(3)])
    waiting[0].cancel()
    waiting[1].delete()
    waiting[2].meta["seen"] = True
    waiting[2].save_meta()
    assert Queue("pn").count == 1
    assert waiting[2].get_position() == 0
    assert Queue("pn").empty() == 1
    for line in ("info", "info -W", "info --json", "suspend", "resume", "requeue --all", "enqueue tasks.sms.sendSMS", "empty pn"):
        done = run(*line.split())
        assert done.returncode == 0, (line, done.stderr)
    eventually(lambda: again.get_status() == "failed")
    assert producer.ping()
    (name,) = [key.decode() for key in producer.smembers("rq:workers") if key.decode().endswith(f".{heir.pid}")]
    # the TLS front hangs up on silence, and a worker takes 2 s to subscribe again
    eventually(lambda: producer.publish(name.replace("worker", "pubsub"), '{"command": "shutdown"}') == 1, interval=0.1)
    assert heir.wait() == 0
    check_conservation(secured.admin, [good.id, noted.id, again.id, lost.id, first.id, waiting[0].id, "outsider"])


def test_the_rights_end_at_the_prefix(secured: Secured, producer: redis.Redis) -> None:
    for command in (
        ("GET", "other"),
        ("SET", "other", "1"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("CLIENT", "KILL", "TYPE", "normal"),
        ("SCRIPT", "FLUSH"),
        ("SCRIPT", "KILL"),
        ("SHUTDOWN",),
        ("PUBLISH", "other", "x"),
        ("EVAL", "return redis.call('GET', 'other')", 0),
        ("DEBUG", "SLEEP", "0"),
    ):
        with pytest.raises(redis.ResponseError):
            producer.execute_command(*command)


@pytest.mark.long
def test_a_right_that_is_missing_is_told_in_one_line(secured: Secured, producer: redis.Redis) -> None:
    secured.admin.execute_command("ACL", "SETUSER", "fusion", "-evalsha", "-eval", "-info")
    for args in (("worker", "sms", "--burst"), ("enqueue", "tasks.sms.sendSMS")):
        done = run(*args)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert "docs/operations.md" in done.stderr


@pytest.mark.long
def test_wrong_authority_name_and_password_are_one_line_each(secured: Secured, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    by_address = secured.env["FUSION_REDIS_URL"].replace("localhost", "127.0.0.1")
    for wrong, hint in (
        ({"FUSION_REDIS_SSL_CA_CERTS": str(other)}, "failed the TLS handshake"),
        ({"FUSION_REDIS_URL": by_address}, "failed the TLS handshake"),
        ({"FUSION_REDIS_PASSWORD": "guess"}, "refused the login"),
        ({"FUSION_REDIS_SSL_CA_CERTS": str(tmp_path / "none.pem")}, "can't be read"),
    ):
        for args in (("worker", "sms", "--burst"), ("info",)):
            done = run(*args, **{**secured.env, **wrong})
            assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
            assert hint in done.stderr
            assert PASSWORD not in done.stderr
            assert "guess" not in done.stderr


@pytest.mark.long
def test_a_password_file_may_be_rotated(secured: Secured, secured_workers: Workers, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    env = {name: value for name, value in secured.env.items() if name != "FUSION_REDIS_PASSWORD"}
    env["FUSION_REDIS_PASSWORD_FILE"] = str(file)
    worker = secured_workers.start("sms", env=env)
    secured.admin.execute_command("ACL", "SETUSER", "fusion", ">new", f"<{PASSWORD}")
    file.write_text("new")
    for client in secured.admin.client_list():
        if client["user"] == "fusion":
            secured.admin.client_kill_filter(_id=client["id"])
    settings = Settings(
        redis_url=env["FUSION_REDIS_URL"], redis_password_file=str(file), redis_ssl_ca_certs=env["FUSION_REDIS_SSL_CA_CERTS"]
    )
    conn = connect(settings)
    job = Queue("sms", conn).enqueue(basic.noop)
    assert job.wait(20) == "finished", worker.output
    conn.close()


def test_the_documentation_names_the_rules() -> None:
    assert acl_rules() in (ROOT / "docs" / "operations.md").read_text()
