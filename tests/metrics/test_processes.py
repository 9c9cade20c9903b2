"""`/metrics` of the probe ports: what real processes counted and hold, without what nobody asked for."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue, Retry
from fusion.exceptions import ConfigurationError
from fusion.metrics.catalogue import ANY, METRICS, RELAY, SCHEDULER, SUPERVISOR, WORKER
from fusion.metrics.process import needed
from fusion.runtime.loop import Loop
from fusion.runtime.probes import HealthReport, Probes
from tests.jobs import basic, codes
from tests.kit.process import ProcessUnderTest
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.metrics.pages import Samples, names, one, samples, values
from tests.supervisor.conftest import services as services
from tests.supervisor.harness import Services
from tests.worker.test_probes import get

#: Metrics of a process that has no link to Redis to tell of, or no duties.
LINK = {"fusion_process_redis_up", "fusion_process_redis_outages_total"}
#: With a middleware that sends spans or envelopes.
TELEMETRY = {"fusion_telemetry_waiting", "fusion_telemetry_sent_total", "fusion_telemetry_dropped_total"}
DUTIES = {"fusion_maintenance_promoted_jobs_total", "fusion_maintenance_recovered_jobs_total"}


def url_of(process: ProcessUnderTest) -> str:
    """Of the first probe port that the log names."""
    return eventually(lambda: re.findall(r"probes: (http://\S+)/livez", process.output))[0]


def page(url: str) -> Samples:
    """As it is now: the first page that has a counter shows it as 0."""
    get(f"{url}/metrics")
    # One page at a time is written: another is refused until its reader has it.
    return samples(eventually(lambda: (found := get(f"{url}/metrics")).status == 200 and found).text.encode())


def targets(url: str, **headers: str) -> list[dict[str, Any]]:
    """What a supervisor tells Prometheus of its processes' ports."""
    found = eventually(lambda: (found := get(f"{url}/targets", **headers)).status == 200 and found)
    assert found.kind == "application/json"
    return list(json.loads(found.text))


def of(*sources: str, full: bool = False) -> set[str]:
    found = {one.name for one in METRICS if one.source in sources and (full or one.full != "metric")}
    return found - TELEMETRY


def own(found: Samples) -> set[str]:
    return {name for name in names(found) if name.startswith("fusion_")}


def test_a_worker_counts_its_jobs_and_shows_no_names(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    worker = workers.start("sms", "mail*", "--slots", "2", "--probe-port", "0")
    url = url_of(worker)
    before = page(url)
    assert own(before) == of(ANY, WORKER)
    assert one(before, "fusion_jobs_finished_total", queue="", priority="high") == 0
    queue = Queue("sms", conn)
    jobs = [queue.enqueue(basic.noop, priority=2) for _ in range(5)] + [queue.enqueue(basic.boom) for _ in range(2)]
    jobs.append(queue.enqueue(basic.boom, retry=Retry(max=1, interval=600, on=(ValueError,))))
    eventually(lambda: [job.get_status() for job in jobs] == ["finished"] * 5 + ["failed"] * 2 + ["scheduled"])
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    running = queue.enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)
    found = page(url)
    assert one(found, "fusion_jobs_finished_total", queue="", priority="high") == 5
    assert one(found, "fusion_jobs_failed_total", queue="", priority="moderate") == 2
    assert one(found, "fusion_jobs_retried_total", queue="", priority="moderate") == 1
    assert one(found, "fusion_job_run_seconds_count", queue="", priority="high") == 5
    assert one(found, "fusion_job_wait_seconds_count", queue="", priority="high") == 5
    assert 0 < one(found, "fusion_job_wait_seconds_sum", queue="", priority="high") < 60
    assert (one(found, "fusion_worker_slots"), one(found, "fusion_worker_busy")) == (2, 1)
    assert one(found, "fusion_worker_taking") == one(found, "fusion_process_redis_up") == 1
    assert one(found, "process_resident_memory_bytes") > 10_000_000
    assert values(found, "queue") == {""}
    assert not {"task", "error_class", "worker"} & {label for _, labels in found for label, _ in labels}
    worker.signal(2)
    eventually(lambda: one(page(url), "fusion_worker_taking") == 0)
    gate.unlink()
    assert running.wait(10) == "finished"


def test_with_full_it_names_queues_tasks_and_errors(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "mail*", "--probe-port", "0", "--probe-metrics", "full")
    url = url_of(worker)
    assert one(page(url), "fusion_jobs_finished_total", queue="sms", priority="low") == 0, "it begins at 0"
    assert Queue("mail-eu", conn).enqueue(basic.noop).wait(10) == "finished"
    assert Queue("sms", conn).enqueue(basic.boom).wait(10) == "failed"
    found = page(url)
    assert own(found) == of(ANY, WORKER, full=True)
    assert one(found, "fusion_jobs_finished_total", queue="mail-eu", priority="moderate") == 1
    assert one(found, "fusion_task_failed_total", task="tests.jobs.basic.boom") == 1
    assert one(found, "fusion_failures_total", error_class="builtins.ValueError") == 1
    assert one(found, "fusion_task_run_seconds_count", task="tests.jobs.basic.noop") == 1


def test_a_counter_is_0_on_the_first_page_that_shows_it(workers: Workers, conn: redis.Redis) -> None:
    """Else Prometheus would take what came before the first scrape for what was always there."""
    worker = workers.start("sms*", "--probe-port", "0", "--probe-metrics", "full")
    url = url_of(worker)
    for nth in (1, 2):
        assert Queue("sms", conn).enqueue(basic.noop).wait(10) == "finished"
        found = samples(get(f"{url}/metrics").text.encode())
        counted = one(found, "fusion_jobs_finished_total", queue="sms", priority="moderate")
        ran = one(found, "fusion_task_run_seconds_count", task="tests.jobs.basic.noop")
        assert counted == ran == (0 if nth == 1 else 2)
    assert Queue("sms-eu", conn).enqueue(basic.noop).wait(10) == "finished"
    found = samples(get(f"{url}/metrics").text.encode())
    assert one(found, "fusion_jobs_finished_total", queue="sms-eu", priority="moderate") == 0
    assert one(found, "fusion_task_finished_total", task="tests.jobs.basic.noop") == 3


def test_no_code_of_a_job_is_on_any_page(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--probe-port", "0", "--probe-metrics", "full", env={"FUSION_TASKS": "tests.jobs.codes"})
    jobs = [
        Queue("sms", conn).enqueue(codes.leak, code, how, description=f"code {code}", meta={"code": code})
        for code in ("4938", "493817", "49381726")
        for how in ("return", "raise", "class")
    ]
    eventually(lambda: all(job.get_status() in ("finished", "failed") for job in jobs))
    url = url_of(worker)
    get(f"{url}/metrics")
    text = get(f"{url}/metrics").text
    assert one(samples(text.encode()), "fusion_task_failed_total", task="tests.jobs.codes.leak") == 6
    labels = " ".join(re.findall(r"\{(.*)\}", text))
    assert re.findall(r"\d{4,}", re.sub(r'le="[^"]*"', "", labels)) == []
    served = subprocess.run(
        [sys.executable, "run_worker.py", "metrics", "--compat", "rq"],
        env={"FUSION_REDIS_URL": workers.redis_url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    ).stdout
    assert "4938" not in served


def test_a_scheduler_counts_ticks_and_moved_jobs(schedulers: Schedulers, conn: redis.Redis) -> None:
    from fusion.cron.scheduler import Scheduler

    scheduler = schedulers.start("--probe-port", "0")
    url = url_of(scheduler)
    assert own(page(url)) == of(ANY, SCHEDULER)
    Scheduler(connection=conn).every(1, basic.noop, id="each-second", queue="q")
    due = Queue("q", conn).enqueue_in(0.5, basic.noop)
    eventually(lambda: one(page(url), "fusion_cron_ticks_total") >= 2)
    eventually(lambda: due.get_status() == "queued")
    eventually(lambda: one(page(url), "fusion_cron_jobs_total") >= 2)
    found = page(url)
    assert 2 <= one(found, "fusion_cron_tick_lateness_seconds_count") <= one(found, "fusion_cron_ticks_total")
    assert one(found, "fusion_cron_tick_lateness_seconds_sum") < 60
    eventually(lambda: one(page(url), "fusion_maintenance_promoted_jobs_total") == 1)


def test_a_relay_counts_events_by_sink(relays: Relays, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    env = {"FUSION_EVENTS_FILE": str(tmp_path / "events"), "FUSION_TASKS": "*"}
    relay = relays.start("--probe-port", "0", env=env)
    url = url_of(relay)
    assert own(page(url)) == of(ANY, RELAY) - DUTIES
    Queue("sms", conn).enqueue(basic.noop)
    eventually(lambda: one(page(url), "fusion_relay_events_total", sink="file") >= 1)
    assert one(page(url), "fusion_relay_failures_total", sink="file") == 0
    assert one(page(url), "fusion_callbacks_delivered_total") == 0


def test_a_supervisor_shows_its_processes_and_where_prometheus_finds_their_probes(services: Services, conn: redis.Redis) -> None:
    service = services.start(2, "sms", "--probe-port", "0")
    url = url_of(service)
    found = page(url)
    assert own(found) == of(ANY, SUPERVISOR) - LINK - DUTIES
    assert sum(value for (name, _), value in found.items() if name == "fusion_supervisor_processes") == 2
    assert one(found, "fusion_supervisor_starts_total") == 2
    both = targets(url)
    assert [entry["labels"] for entry in both] == [{"process": "worker 1"}, {"process": "worker 2"}]
    ports = [entry["targets"][0] for entry in both]
    assert all(one(page(f"http://{port}"), "fusion_worker_slots") == 1 for port in ports)
    service.workers()[0].kill()
    eventually(lambda: one(page(url), "fusion_supervisor_crashes_total") == 1, 30)

    def others() -> list[str]:
        found = [entry["targets"][0] for entry in targets(url)]
        return found if len(found) == 2 and found != ports else []

    assert eventually(others, 30)


def test_ports_at_every_address_are_named_as_prometheus_calls_the_supervisor(services: Services, conn: redis.Redis) -> None:
    url = url_of(services.start(1, "sms", "--probe-port", "0", "--probe-host", "0.0.0.0")).replace("0.0.0.0", "127.0.0.1")
    for said, host in (
        ("worker7.example.com:8081", "worker7.example.com"),
        ("[::1]:8081", "[::1]"),
        ("a b", socket.gethostname()),
    ):
        ((target,),) = [entry["targets"] for entry in targets(url, Host=said)]
        assert re.fullmatch(rf"{re.escape(host)}:\d+", target)


# -- the port itself


@pytest.fixture
def turning() -> Iterator[tuple[Loop, list[bool]]]:
    """A loop that another thread turns until the list is empty."""
    loop, on = Loop(), [True]

    def turn() -> None:
        while on:
            loop.run_once(0.01)

    thread = threading.Thread(target=turn)
    thread.start()
    yield loop, on
    on.clear()
    thread.join()


def test_the_loop_turns_while_pages_are_written_and_too_many_are_refused(turning: tuple[Loop, list[bool]]) -> None:
    gate, begun = threading.Event(), list[float]()

    def slow() -> tuple[str, bytes]:
        begun.append(time.monotonic())
        assert gate.wait(30)
        return "text/plain", b"late\n"

    probes = Probes(turning[0], {"/livez": lambda: HealthReport([])}, {"/metrics": lambda host: slow})
    url = probes.open("127.0.0.1", 0)
    answers: list[str] = []

    def wait_for_it() -> None:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
            answers.append(response.read().decode())

    asking = [threading.Thread(target=wait_for_it) for _ in range(2)]
    for thread in asking:
        thread.start()
    eventually(lambda: len(begun) == len(asking))
    assert get(f"{url}/metrics").status == 503
    assert get(f"{url}/livez").text == "ok\n"
    gate.set()
    for thread in asking:
        thread.join()
    assert answers == ["late\n"] * 2
    assert eventually(lambda: get(f"{url}/metrics").text == "late\n")
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", method="HEAD"), timeout=5) as response:
        assert (response.read(), response.headers["Content-Length"]) == (b"", "5")
    turning[1].clear()
    time.sleep(0.05)
    probes.close()


def test_a_page_that_fails_is_a_500_and_the_next_one_is_written(turning: tuple[Loop, list[bool]]) -> None:
    told = iter([RuntimeError("a secret of the code 493817"), ConfigurationError("install it so", code="FUS-214")])

    def fails() -> tuple[str, bytes]:
        raise next(told)

    probes = Probes(turning[0], {}, {"/metrics": lambda host: fails})
    url = probes.open("127.0.0.1", 0)
    first, second = get(f"{url}/metrics"), get(f"{url}/metrics")
    assert (first.status, first.text) == (500, "internal server error\n")
    assert (second.status, second.text.count("\n")) == (501, 1)
    assert second.text.startswith("install it so")
    turning[1].clear()
    time.sleep(0.05)
    probes.close()


def test_without_the_library_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client" or name == "fusion.metrics.page"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delattr("fusion.metrics.page", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'fusion-queue\[prometheus\]'") as caught:
        needed()
    assert "\n" not in str(caught.value)


def test_who_has_no_probe_port_loads_nothing_of_it() -> None:
    code = (
        "import sys, fusion.worker.worker, fusion.scheduler.process, fusion.relay.process, fusion.courier.courier, fusion.web.api\n"
        "print([name for name in sys.modules if name.startswith(('fusion.metrics', 'prometheus_client'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50).stdout
    assert "prometheus_client" not in found
    code = code.replace(", fusion.web.api", "")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50).stdout == "[]\n"
