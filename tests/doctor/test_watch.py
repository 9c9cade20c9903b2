"""`doctor --watch`: one alert when the verdict turns, and one when it is well again, however many watch and whatever happens meanwhile."""

from __future__ import annotations

import json
import re
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from fusion.cli.main import cli
from fusion.doctor.finding import Finding
from fusion.doctor.verdict import Verdict
from fusion.doctor.watch import Watch, alert
from fusion.kernel.timeutil import from_iso
from fusion.settings import Settings
from fusion.store.layout import codec
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.doctor.watching import Watching
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually

URL = "https://hooks.example.com/x?token=S3CR3T"


@pytest.fixture
def watching(conn: redis.Redis, redis_url: str, tmp_path: Path) -> Iterator[Watching]:
    with Watching(conn, redis_url, tmp_path) as found:
        yield found


@pytest.mark.timeout(500)
def test_it_tells_once_when_it_turns_bad_and_once_when_it_is_well_again(watching: Watching) -> None:
    """Of two that watch one tells, and no worker and no relay is there to deliver it."""
    watchers = [watching.start(), watching.start()]
    for one in watchers:
        one.says("healthy", timeout=150)
    watching.make_bad()
    (firing,) = watching.until(1)
    assert (firing.type, firing.data["verdict"]) == ("alert.firing", "unhealthy")
    assert firing.data["causes"][0]["code"] == "FUS-483"
    assert "no live worker serves it" in firing.data["text"]
    for one in watchers:
        one.says(re.compile(r"unhealthy: 1 cause"), timeout=150)
    looked = time.monotonic() + 3
    eventually(lambda: time.monotonic() > looked, 10, why="three more looks of each")
    watching.make_well()
    _, resolved = watching.until(2)
    assert (resolved.type, resolved.data["verdict"], resolved.data["causes"]) == ("alert.resolved", "healthy", [])
    for one in watchers:
        one.says(re.compile("(?<!un)healthy;"), times=2, timeout=150)
        one.signal(signal.SIGTERM)
    assert [one.wait(100) for one in watchers] == [0, 0]
    assert len(watching.told) == 2
    assert sum(one.count(re.compile(r"alert cb-\S+ goes")) for one in watchers) == 2
    assert "S3CR3T" not in "".join(one.output for one in watchers)


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_watcher_that_starts_late_tells_what_is_bad_already_and_its_exit_code_says_it(watching: Watching) -> None:
    watching.make_bad()
    watcher = watching.start()
    assert [one.type for one in watching.until(1)] == ["alert.firing"]
    watcher.signal(signal.SIGTERM)
    assert watcher.wait(100) == 3
    again = watching.start()
    again.says(re.compile("unhealthy: [1-9] cause"), timeout=150)
    again.says("has the alert already", timeout=150)
    assert len(watching.told) == 1


@pytest.mark.long
@pytest.mark.timeout(500)
def test_it_outlives_redis_and_says_that_it_can_not_tell_anybody(private_redis: PrivateRedis, tmp_path: Path) -> None:
    with Watching(private_redis.conn, private_redis.url, tmp_path) as watching:
        watcher = watching.start()
        watcher.says("healthy", timeout=150)
        private_redis.kill()
        watcher.says("Redis is away, no alert can be sent", timeout=150)
        watcher.signal(signal.SIGTERM)
        assert watcher.wait(100) == 1, watcher.output
        private_redis.revive()
        watcher = watching.start()
        watcher.says("healthy", timeout=150)
        private_redis.kill()
        watcher.says("Redis is away", timeout=150)
        private_redis.revive()
        watching.make_bad()
        assert [one.type for one in watching.until(1)] == ["alert.firing"]


# -- looks, without a process


class Scripted(Watch):
    """Looks that are given, the rest is real."""

    def __init__(self, conn: redis.Redis, redis_url: str, *, strict: bool = False, url: str | None = URL) -> None:
        super().__init__(Settings.load(redis_url=redis_url), url, 3600, strict=strict, relay=(), program="fusion")
        self.words: list[str] = []

    def _examine(self):  # type: ignore[no-untyped-def]
        at = from_iso("2026-01-01T00:00:00.000000Z")
        return Verdict(self.words.pop(0), (), 0.0), at  # type: ignore[arg-type]

    def look(self, *words: str) -> None:
        self.words = list(words)
        while self.words:
            self._look(0.0)


def alerts(conn: redis.Redis) -> list[str]:
    found = []
    for raw in conn.zrange("rq:callbacks:open", 0, -1):
        _, _, _, sent = json.loads(codec.text(conn.hget(f"rq:job:{raw.decode()}", "data")))
        found.append(json.loads(sent["body"])["type"].removeprefix("alert."))
    return sorted(found, key=("firing", "resolved").index)


@pytest.fixture
def scripted(conn: redis.Redis, redis_url: str) -> Iterator[Scripted]:
    found = Scripted(conn, redis_url)
    with found.closing:
        yield found


def test_one_look_tells_nobody_and_two_in_a_row_do(scripted: Scripted, conn: redis.Redis) -> None:
    scripted.look("healthy", "unhealthy", "healthy", "unhealthy", "strained", "healthy", "healthy")
    assert alerts(conn) == []
    scripted.look("unhealthy", "unhealthy", "unhealthy", "healthy", "unhealthy")
    assert alerts(conn) == ["firing"]
    scripted.look("unhealthy", "healthy", "strained", "healthy")
    assert alerts(conn) == ["firing", "resolved"]


def test_with_strict_a_warning_is_bad_and_each_level_and_url_has_a_memory_of_its_own(conn: redis.Redis, redis_url: str) -> None:
    kinds = [{"strict": True}, {}, {"url": f"{URL}2"}, {"strict": True, "url": f"{URL}2"}]
    for kind in kinds:
        found = Scripted(conn, redis_url, **kind)  # type: ignore[arg-type]
        with found.closing:
            found.look("strained", "strained")
    assert alerts(conn) == ["firing", "firing"]


def test_while_too_many_callbacks_wait_it_tries_again(
    scripted: Scripted, conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    able, scripted._broker = scripted._broker, Broker(conn, FleetConstants(callbacks_max=0))
    scripted.look("unhealthy", "unhealthy", "unhealthy")
    assert alerts(conn) == []
    assert "too many callbacks wait" in caplog.text
    scripted._broker = able
    scripted.look("unhealthy", "unhealthy")
    assert alerts(conn) == ["firing"]


def test_a_broken_key_is_said_and_is_no_outage(scripted: Scripted, conn: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    conn.set("rq:callbacks:verdicts", "x")
    scripted.look("unhealthy", "unhealthy")
    assert "gets no alert, the next look tries again" in caplog.text
    conn.delete("rq:callbacks:verdicts")
    scripted.look("unhealthy")
    assert alerts(conn) == ["firing"]


def test_after_a_loss_of_what_redis_knew_it_is_told_again_and_not_otherwise(scripted: Scripted, conn: redis.Redis) -> None:
    scripted.look("unhealthy", "unhealthy")
    scripted.link.outages += 1
    scripted.look("unhealthy")
    assert alerts(conn) == ["firing"]
    conn.delete("rq:callbacks:verdicts")
    scripted.look("unhealthy", "unhealthy")
    assert alerts(conn) == ["firing"]
    scripted.link.outages += 1
    scripted.look("unhealthy")
    assert alerts(conn) == ["firing", "firing"]


def test_what_was_told_is_forgotten_after_90_days(conn: redis.Redis) -> None:
    assert Broker(conn).tell_verdict(URL, "unhealthy", True, secrets.token_hex(8), "unhealthy", "{}")
    assert 89 * 86400 < conn.ttl("rq:callbacks:verdicts") <= 90 * 86400


def test_an_alert_stays_small_and_in_ascii() -> None:
    long = Finding("FUS-1", "fail", "queues", "\u00fc" * 5000, "\u00fc" * 5000, "x" * 5000)
    long = replace(long, what="\U0001f600" * 500)
    found = Verdict("unhealthy", (long,) * 30 + (replace(long, level="note"),), 1.5)
    text = alert(found, True, from_iso("2026-01-01T00:00:00.000000Z"))  # type: ignore[arg-type]
    assert text.isascii() and len(text) < 20_480
    said = json.loads(text)["data"]
    assert len(said["causes"]) == 2
    assert said["more_causes"] == 28


# -- the command line


def invoke(*args: str, **env: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *args], env=env)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--notify", URL), "are for --watch; add it"),
        (("--every", "5"), "are for --watch; add it"),
        (("--watch", "--json"), "exclude each other"),
        (("--watch", "--notify", "ftp://x/S3CR3T"), "use a URL like https://host"),
        (("--watch", "--notify", "http://hooks.example.com/S3CR3T"), "allow plain http by the setting callback_allow_http"),
        (("--watch", "--notify", "https://10.1.2.3/S3CR3T"), "name it in callback_allowed_hosts"),
        (("--watch", "--notify", "https://x.example:99/S3CR3T"), "is none of callback_ports"),
    ],
)
def test_what_can_not_be_told_is_refused_at_the_start(args: tuple[str, ...], said: str, redis_url: str) -> None:
    found = invoke(*args, "-u", redis_url)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())
    assert "S3CR3T" not in found.stderr


def test_the_variable_alone_changes_nothing_for_a_single_look(redis_url: str) -> None:
    assert invoke("-u", redis_url, FUSION_DOCTOR_NOTIFY=URL).exit_code == 0
