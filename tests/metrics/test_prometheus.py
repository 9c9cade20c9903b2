"""A real Prometheus (Debian's `prometheus`, which holds promtool) scrapes a real fleet: alerts fire and clear, each panel shows the truth.

Three servers and twenty workers, one of which is killed and one restarted at its port."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from fusion import Queue, Retry
from fusion.store.write.broker import Broker
from tests.jobs import basic
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ProcessUnderTest
from tests.kit.servers import free_port
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess
from tests.metrics.queries import RULES, SCRAPES, panels, rules
from tests.supervisor.harness import Service

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="no Prometheus here (Debian: apt-get install prometheus)",
    ),
]
WORKERS = 20
#: Jobs of the first round and of the second, by what happens to them.
FINISHED, FAILED, RETRIED = (60, 20), (10, 4), (6, 3)


@dataclass
class Prometheus:
    """A server of the test's own. `ask` evaluates a query; the values by all labels but those that the scrape sets."""

    url: str

    def _get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=20) as response:
            return json.load(response)["data"]

    def ask(self, expr: str) -> dict[tuple[str, ...], float]:
        found = self._get("query", query=expr)["result"]
        return {
            tuple(value for label, value in sorted(one["metric"].items()) if label != "__name__"): float(one["value"][1])
            for one in found
        }

    def number(self, expr: str) -> float:
        return next(iter(self.ask(expr).values()), float("nan"))

    def firing(self) -> set[str]:
        return {one["labels"]["alertname"] for one in self._get("alerts")["alerts"] if one["state"] == "firing"}

    def up(self) -> int:
        return sum(one["health"] == "up" for one in self._get("targets")["activeTargets"])


class Fleet:
    """The processes that are scraped."""

    def __init__(self, redis_url: str, directory: Path) -> None:
        self.redis_url, self.directory = redis_url, directory
        self.ports = [free_port() for _ in range(3)]
        self.alone_port = free_port()
        self.servers = [self.server(port) for port in self.ports]
        flags = ("-n", str(WORKERS - 1), "--customq", "sms,mail", "--probe-port", "0", "--probe-metrics", "full")
        env = {"FUSION_TASKS": "tests.jobs.basic", "FUSION_LEASE": "6"}
        self.service = Service(redis_url, directory / "start.log", *flags, env=env, scheduler=True)
        self.alone = self.worker()
        self.service.wait_ready(WORKERS - 1, timeout=240)
        self.supervisor = re.findall(r"probes: http://(\S+)/livez", self.service.output)[0]

    def server(self, port: int) -> ProcessUnderTest:
        log = self.directory / f"metrics-{port}-{time.monotonic()}.log"
        started = ProcessUnderTest(self.redis_url, log, "run_worker.py", "metrics", "--listen", str(port), "--no-auth")
        started.says("serving http", timeout=60)
        return started

    def worker(self) -> WorkerProcess:
        log = self.directory / f"alone-{time.monotonic()}.log"
        flags = ("sms", "mail", "--probe-port", str(self.alone_port), "--probe-metrics", "full")
        return WorkerProcess(self.redis_url, log, *flags, env={"FUSION_TASKS": "tests.jobs.basic", "FUSION_LEASE": "6"})

    def stop(self) -> None:
        for process in (*self.servers, self.alone):
            process.stop()
        self.service.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture
def fleet(private_redis: PrivateRedis, place: Path) -> Iterator[Fleet]:
    found = Fleet(private_redis.url, place)
    yield found
    found.stop()


@pytest.fixture
def prometheus(fleet: Fleet, place: Path) -> Iterator[Prometheus]:
    """Scrapes as deploy/prometheus/prometheus.yml does, and its rules without the waits: else this would take minutes more."""
    example = yaml.safe_load(SCRAPES.read_text())
    jobs = {one["job_name"]: one for one in example["scrape_configs"]}
    del jobs["fusion-server"]["authorization"]
    jobs["fusion-server"]["static_configs"][0]["targets"] = [f"127.0.0.1:{port}" for port in fleet.ports]
    jobs["fusion-supervisor"]["static_configs"][0]["targets"] = [fleet.supervisor]
    jobs["fusion-process"]["http_sd_configs"] = [{"url": f"http://{fleet.supervisor}/targets", "refresh_interval": "1s"}]
    jobs["fusion-process"]["static_configs"] = [{"targets": [f"127.0.0.1:{fleet.alone_port}"]}]
    example["global"] = {"scrape_interval": "3s", "evaluation_interval": "1s"}
    (place / "prometheus.yml").write_text(yaml.safe_dump(example))
    (place / "fusion.rules.yml").write_text(re.sub(r"for: \d+m", "for: 0s", RULES.read_text()))
    port = free_port()
    log = (place / "prometheus.log").open("w")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={place / 'prometheus.yml'}",
            f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )
    found = Prometheus(f"http://127.0.0.1:{port}")

    def answers() -> bool:
        try:
            return found.up() == WORKERS + 3 + 2  # the supervisor and the scheduler, too
        except OSError:
            return False

    try:
        eventually(answers, 60, why="every process is scraped")
        yield found
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def run_jobs(conn: redis.Redis, nth: int) -> None:
    queue = Queue("sms", conn)
    jobs = [queue.enqueue(basic.noop, priority=2) for _ in range(FINISHED[nth])]
    jobs += [queue.enqueue(basic.boom) for _ in range(FAILED[nth])]
    again = Retry(max=1, interval=3600, on=(ValueError,))
    jobs += [Queue("mail", conn).enqueue(basic.boom, retry=again, priority=0) for _ in range(RETRIED[nth])]
    ended = {"finished": FINISHED[nth], "failed": FAILED[nth], "scheduled": RETRIED[nth]}

    def over() -> bool:
        states = [job.get_status() for job in jobs]
        return all(states.count(state) == count for state, count in ended.items())

    eventually(over, 60, why="all jobs ended")


def orphaned(conn: redis.Redis) -> list[str]:
    """Jobs of a queue that no worker serves."""
    return [Queue("orphan", conn).enqueue(basic.noop, priority=priority).id for priority in [1] * 7 + [2] * 2]


def settled(ask: Callable[[], object], expected: object, seconds: float = 40) -> None:
    """What Prometheus shows becomes the truth, as soon as it was sampled, read and scraped."""
    last: list[object] = [None]

    def same() -> bool:
        last[0] = ask()
        return last[0] == expected

    try:
        eventually(same, seconds)
    except AssertionError:
        raise AssertionError(f"{last[0]} is not {expected}") from None


def shown(expr: str) -> str:
    return expr.replace("$fleet", ".*").replace("$__rate_interval", "10m").replace("$__range", "10m")


def check_panels(prometheus: Prometheus, conn: redis.Redis, rounds: int) -> None:
    """Each panel, against what is known."""
    board = {title: {legend: shown(expr) for legend, expr in one.items()} for title, one in panels().items()}
    finished, failed, retried = (sum(one[:rounds]) for one in (FINISHED, FAILED, RETRIED))
    seen: set[str] = set()

    def exact(title: str, legend: str, expected: dict[tuple[str, ...], float] | float) -> None:
        seen.add(title)
        expr = board[title][legend]
        settled(lambda: prometheus.number(expr) if isinstance(expected, (int, float)) else prometheus.ask(expr), expected)

    def near(title: str, legend: str, expected: float, share: float = 0.1, more: Callable[[float], float] = float) -> None:
        """Prometheus extrapolates an increase to the ends of its window, by half an interval of the scrapes: the more there are, the less."""
        seen.add(title)
        settled(lambda: more(prometheus.number(board[title][legend])), pytest.approx(expected, rel=share), 120)

    exact("Waiting, by priority", "{{priority}}", {("low",): 0, ("moderate",): 7, ("high",): 2})
    exact("Waiting, the ten longest queues", "{{queue}}", {("orphan",): 9, ("sms",): 0, ("mail",): 0})
    exact("Jobs by status", "failed", failed)
    exact("Jobs by status", "scheduled", retried)
    statuses = {(one,): 0.0 for one in ("started", "blocked", "deferred", "canceled", "stopped")}
    exact("Jobs by status", "{{status}}", {**statuses, ("finished",): finished})
    exact("Paused queues", "paused", 0)
    exact("Workers by state", "{{state}}", {(one,): float(WORKERS * (one == "idle")) for one in
          ("idle", "busy", "suspended", "quiet", "throttled", "dead")})  # fmt: skip
    exact("Slots", "busy", 0)
    exact("Slots", "all", WORKERS)
    exact("Callbacks not delivered", "waiting", 0)
    exact("Sinks: oldest event", "{{sink}}", {})
    oldest = prometheus.ask(board["Oldest waiting job, by priority"]["{{priority}}"])
    assert oldest["high",] == pytest.approx(oldest["moderate",], abs=3)
    assert oldest["low",] == 0
    seen.add("Oldest waiting job, by priority")

    whole = "Runs that ended, in the whole range"
    for legend, count in (("finished", finished), ("failed", failed), ("retried", retried)):
        near(whole, legend, count)
        # A rate over a window that began before the first scrape is less than the jobs over its length: compare the jobs.
        near("Runs that ended, per second", legend, count, more=lambda found: found * 600)
    exact(whole, "lost", 0)
    exact("Runs that ended, per second", "lost", 0)
    task = "Finished by task (needs --probe-metrics full)"
    near(task, "{{task}}", finished, more=lambda found: found * 600)
    (name,) = [labels for labels, value in prometheus.ask(board[task]["{{task}}"]).items() if value]
    assert name == ("tests.jobs.basic.noop",)
    errors = "Errors by class (needs --probe-metrics full)"
    assert set(prometheus.ask(board[errors]["{{error_class}}"])) == {("builtins.ValueError",)}
    seen.add(errors)
    for title, metric in (("Wait, 95 % at most", "wait"), ("Run, 95 % at most", "run")):
        seen.add(title)
        found = prometheus.ask(board[title]["{{priority}}"])
        assert 0 < found["high",] < 120
        count = f'sum(increase(fusion_job_{metric}_seconds_count{{priority="high"}}[10m]))'
        settled(lambda count=count: prometheus.number(count), pytest.approx(finished, rel=0.1))  # type: ignore[misc]

    rates = board["In and out"]
    eventually(lambda: prometheus.number(rates["enqueued"]) >= 0, 60, why="a sample of what was enqueued")
    seen.add("In and out")
    for legend in ("scheduled jobs", "cron"):
        assert prometheus.number(board["Lateness"][legend]) < 5
    seen.add("Lateness")
    info = conn.info()
    used = prometheus.number(board["Memory"]["used"])
    assert used == pytest.approx(info["used_memory"], rel=0.5)
    assert prometheus.number(board["Memory"]["limit"]) == info["maxmemory"]
    assert 0 < prometheus.number(board["CPU"]["{{fleet}}"]) < 1
    assert prometheus.number(board["Age of the samples"]["{{fleet}}"]) < 20
    assert prometheus.number(board["Memory of workers"]["without jobs"]) > WORKERS * 20_000_000
    seen |= {"Memory", "CPU", "Age of the samples", "Memory of workers"}
    assert seen == set(board), "each panel"


def test_alerts_fire_and_clear_and_each_panel_shows_the_truth(
    private_redis: PrivateRedis, fleet: Fleet, prometheus: Prometheus
) -> None:
    conn = redis.Redis.from_url(private_redis.url)
    settled(lambda: prometheus.number("sum(fusion_jobs_finished_total)"), 0)
    settled(prometheus.firing, set())
    run_jobs(conn, 0)
    orphans = orphaned(conn)
    check_panels(prometheus, conn, 1)
    by_queue = 'sum by (queue, priority) (fusion_jobs_finished_total{queue="sms",priority="high"})'
    assert prometheus.ask(by_queue) == {("high", "sms"): FINISHED[0]}
    scraped = prometheus.ask('count by (job) (up{job=~"fusion.*"} == 1)')
    assert scraped == {("fusion-server",): 3, ("fusion-supervisor",): 1, ("fusion-process",): WORKERS + 1}

    # A queue that no worker serves; then a server that is gone; a Redis that is gone.
    assert "FusionQueueUnserved" in prometheus.firing()
    Broker(conn).delete(orphans)
    settled(lambda: prometheus.firing() & {"FusionQueueUnserved"}, set())

    fleet.servers[0].stop()
    eventually(lambda: "FusionTargetDown" in prometheus.firing(), 30)
    fleet.servers[0] = fleet.server(fleet.ports[0])
    settled(lambda: prometheus.firing() & {"FusionTargetDown"}, set())

    Broker(conn).pause("sms")
    Queue("sms", conn).enqueue(basic.noop, priority=2, job_id="stuck")
    conn.hset("rq:job:stuck", mapping={"enqueued_at": "2026-01-01T00:00:00.000000Z", "created_at": "2026-01-01T00:00:00.000000Z"})
    eventually(lambda: prometheus.number('fusion:queue_oldest_age_seconds{queue="sms",priority="high"}') > 60, 40)
    assert "FusionQueueStuck" not in prometheus.firing(), "a paused queue is not stuck"
    Broker(conn).delete(["stuck"])
    Broker(conn).unpause("sms")
    settled(lambda: prometheus.number("sum(fusion:queue_paused)"), 0)

    # One worker is killed, one restarted at its port: counters begin again, increases go on.
    time.sleep(7)  # two scrapes: what was counted after the last one is lost with the process
    fleet.service.workers()[0].kill()
    fleet.alone.signal(15)
    assert fleet.alone.wait(30) == 0
    fleet.alone = fleet.worker().wait_ready(60)
    fleet.service.until_ready(WORKERS)
    eventually(lambda: prometheus.up() == WORKERS + 5, 60)
    run_jobs(conn, 1)
    orphaned(conn)
    check_panels(prometheus, conn, 2)

    private_redis.kill()
    eventually(lambda: "FusionRedisAway" in prometheus.firing(), 60)
    assert prometheus.number("max(fusion_redis_up)") == 0
    private_redis.revive()
    settled(lambda: prometheus.firing() & {"FusionRedisAway"}, set(), 60)


def test_promtool_accepts_rules_and_scrapes() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, timeout=30, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules())} rules found" in checked.stdout
    command = ["promtool", "check", "config", "--syntax-only", str(SCRAPES)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
