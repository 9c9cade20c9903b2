"""The services of docker-compose.yml, each by its own command: they find each other, and a job runs."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import redis

from fusion.store.redis_server.binary import ServerBinary
from tests.deploy.compose import Outside, Process, seconds
from tests.kit.process import ROOT
from tests.kit.servers import free_port
from tests.kit.waiting import eventually
from tests.sinks.contract import ContractServer

needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="curl, which the images of Elastic hold, is not installed here"
)


class Town:
    """The services that run, on ports of this machine."""

    def __init__(self, stack: ExitStack, directory: Path, binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> None:
        (directory / "bin").mkdir()
        (directory / "bin" / "redis-server").symlink_to(binary.path)
        monkeypatch.setenv("PATH", str(directory / "bin"), prepend=":")
        self._stack, self.redis_port, self.port = stack, free_port(), free_port()
        hosts = {"@redis:6379": f"@127.0.0.1:{self.redis_port}", "127.0.0.1:8080": f"127.0.0.1:{self.port}"}
        hosts["redis-cli"] = f"redis-cli -p {self.redis_port}"
        self.outside = Outside(directory, hosts)
        self.token = self.outside.make_secrets().splitlines()[-1]
        self.password = (directory / "secrets" / "redis_password").read_text()

    def up(self, name: str, *more: str, **env: str) -> Process:
        started = self.outside.run(name, *more, **env)
        self._stack.callback(started.stop)
        return started

    def redis_up(self) -> Process:
        password_file = str(
            self.outside.directory / "secrets" / "redis_password"
        )  # the script has its place in a container by itself
        here = ("--port", str(self.redis_port), "--bind", "127.0.0.1")
        started = self.up("redis", *here, FUSION_REDIS_PASSWORD_FILE=password_file)
        client = redis.Redis(port=self.redis_port, username="fusion", password=self.password)
        started.until(lambda: _answers(client), 15, "Redis answers")
        return started

    def ask(self, path: str, body: object = None) -> dict[str, object]:
        """The HTTP API, with the token."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", data, headers), timeout=20) as answer:
            return dict(json.load(answer))

    def enqueue(self) -> str:
        made = self.ask("/api/v1/jobs", {"queue": "sms", "func": "tests.jobs.basic.add", "args": [1, 2]})
        return str(made["job_id"])

    def page(self, path: str, *, cookie: str = "", form: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
        """A page of the dashboard: status, headers, text."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Cookie": cookie} if cookie else {}
        if form is not None:
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        connection.request("GET" if form is None else "POST", path, urlencode(form) if form else None, headers)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        connection.close()
        return found


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def town(tmp_path: Path, server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(stack, tmp_path, server_binary, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_services_find_each_other_and_a_job_runs(town: Town) -> None:
    if has_client := shutil.which("redis-cli") is not None:
        assert not town.outside.is_healthy("redis")
    store = town.redis_up()
    assert not has_client or town.outside.is_healthy("redis")
    # The team's own tasks; containers have tasks/ of the checkout, which ask providers on the internet.
    own = {"FUSION_TASKS": "tests.jobs.basic"}
    worker = town.up("worker", **own)
    assert not town.outside.is_healthy("server")
    server = town.up("server", FUSION_SERVER_PORT=str(town.port), **own)
    server.says("serving http")
    assert town.outside.is_healthy("server")
    worker.says("is ready", times=2, timeout=60)

    job_id = town.enqueue()
    eventually(lambda: town.ask(f"/api/v1/jobs/{job_id}")["status"] == "finished", 30, why="the job has run")

    status, headers, _ = town.page("/")
    assert (status, headers["location"]) == (303, "/login")
    status, headers, _ = town.page("/login", form={"token": town.token})
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].partition(";")[0]
    status, _, text = town.page(f"/jobs/{job_id}", cookie=cookie)
    assert (status, ">tests.jobs.basic.</span><strong>add</strong>" in text, "finished" in text) == (200, True, True)
    assert town.page("/", cookie=cookie)[0] == 200

    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=town.redis_port).ping()
    for name, process in (("server", server), ("worker", worker), ("redis", store)):
        process.dismiss()
        assert process.wait(seconds(town.outside.services[name]["stop_grace_period"])) == 0, process.output


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_profile_prepares_elasticsearch_and_brings_every_event_there(town: Town) -> None:
    search = ContractServer()
    try:
        town.outside.hosts["http://elasticsearch:9200"] = search.url
        for done in ("created", "unchanged"):
            setup = town.up("events-setup")
            assert setup.wait(60) == 0, setup.output
            assert [line.partition(": ")[2] for line in setup.output.splitlines()[-3:]] == [done] * 3
        (template,) = search.cluster.templates.values()
        assert "data_stream" in template
        town.redis_up()
        own = {"FUSION_TASKS": "tests.jobs.basic"}
        town.up("worker", **own).says("is ready", times=2, timeout=60)
        town.up("server", FUSION_SERVER_PORT=str(town.port), **own).says("serving http")
        job_id = town.enqueue()
        relay = town.up("relay")

        def told() -> set[str]:
            found = search.documents("logs-fusion.job-default").values()
            return {one["event"]["action"] for one in found if one["fusion"]["job_id"] == job_id}

        relay.until(lambda: told() >= {"queued", "processing", "completed"}, 60, "the events are there")
    finally:
        search.stop()
    assert search.violations == []


class _Answering(ThreadingHTTPServer):
    """Answers each request with `status`, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Answering

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = _answer

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[_Answering]:
    server = _Answering()
    yield server
    server.shutdown()
    server.server_close()


@needs_curl
def test_kibana_gets_the_shipped_objects_and_keeps_what_somebody_changed(answering: _Answering, tmp_path: Path) -> None:
    outside = Outside(tmp_path, {"kibana:5601": answering.place})
    sent = outside.run("kibana-setup")
    assert sent.wait() == 0, sent.output
    ((method, path, headers, body),) = answering.asked
    assert (method, path, headers["kbn-xsrf"]) == ("POST", "/api/saved_objects/_import", "true")
    assert headers["content-type"].startswith("multipart/form-data")
    assert b'name="file"; filename="fusion.ndjson"' in body
    assert (ROOT / "deploy" / "kibana" / "fusion.ndjson").read_bytes() in body
    answering.status = 503
    assert outside.run("kibana-setup").wait() != 0


@needs_curl
@pytest.mark.parametrize(
    ("name", "place", "path"),
    [
        ("elasticsearch", "localhost:9200", "/_cluster/health?wait_for_status=yellow&timeout=2s"),
        ("kibana", "localhost:5601", "/api/status"),
    ],
)
def test_services_of_others_are_healthy_when_they_say_so(
    answering: _Answering, tmp_path: Path, name: str, place: str, path: str
) -> None:
    outside = Outside(tmp_path, {place: answering.place})
    assert outside.is_healthy(name)
    assert [asked[:2] for asked in answering.asked] == [("GET", path)]
    answering.status = 503
    assert not outside.is_healthy(name)
