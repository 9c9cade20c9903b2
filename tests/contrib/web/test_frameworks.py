"""What the integrations of Flask, FastAPI and SQLAlchemy do around a request and around a job."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import redis
from fastapi import FastAPI
from flask import Flask, current_app, g
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker
from sqlalchemy.pool import QueuePool

from fusion import AsyncQueue, Queue, context, middleware
from fusion.contrib import request_ids
from fusion.contrib.fastapi import Lifespan, async_queue, carry_request_ids
from fusion.contrib.flask import Fusion
from fusion.contrib.sqlalchemy.sessions import JobSessions, keep_apart, scope_of_job

ORDERS = async_queue("orders")
Orders = Annotated[AsyncQueue, ORDERS]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = middleware.registered
    yield
    middleware.registered = before


def run(hook: Any, job: Any, task: Any) -> Any:
    """Run a task within a hook, as a worker does."""
    around = hook.around_job(job)
    next(around)
    try:
        found = task()
    except Exception as error:
        with pytest.raises(type(error)):
            around.throw(error)
        return error
    assert next(around, "ended") == "ended"
    return found


def a_job(**meta: Any) -> Any:
    return SimpleNamespace(meta=meta, id="j1", execution_id="e1")


# -- ids of requests


@pytest.mark.parametrize("given", [None, "", "a b", "a\nb", "x" * 129, "é"])
def test_an_id_that_no_log_line_should_hold_is_replaced(given: str | None) -> None:
    made = request_ids.accepted(given)
    assert made != given
    assert len(made) == 32
    assert request_ids.accepted("a-1.B_2:c") == "a-1.B_2:c"


def test_a_job_has_the_id_while_it_runs_and_so_have_the_jobs_that_it_enqueues(conn: redis.Redis) -> None:
    request_ids.install()
    ids = next(one for one in middleware.registered if isinstance(one, request_ids.RequestIds))

    def task() -> tuple[str | None, Any]:
        return request_ids.request_id.get(), Queue("q", conn).enqueue("tests.jobs.basic.noop")

    seen, enqueued = run(ids, a_job(request_id="r1"), task)
    assert (seen, request_ids.request_id.get()) == ("r1", None)
    enqueued.refresh()
    assert enqueued.meta == {"request_id": "r1"}
    assert run(ids, a_job(), request_ids.request_id.get) is None
    assert run(ids, a_job(request_id=7), request_ids.request_id.get) is None  # of whoever wrote the meta
    given = Queue("q", conn).enqueue("tests.jobs.basic.noop", meta={"request_id": "own"})
    assert given.meta == {"request_id": "own"}


def test_log_records_have_the_id_unless_they_have_one_of_their_own() -> None:
    record = logging.makeLogRecord({})
    other = logging.makeLogRecord({"request_id": "own"})
    request_ids.request_id.set("r2")
    try:
        for one in (record, other):
            assert request_ids.RequestIdFilter().filter(one)
    finally:
        request_ids.request_id.set(None)
    assert [vars(one)["request_id"] for one in (record, other)] == ["r2", "own"]
    later = logging.makeLogRecord({})
    request_ids.RequestIdFilter().filter(later)
    assert vars(later)["request_id"] == "-"


# -- Flask


def test_a_job_of_flask_runs_in_the_applications_context_which_ends_with_it() -> None:
    app, ended = Flask("shop"), list[Any]()
    fusion = Fusion()
    assert (
        run(fusion, a_job(), lambda: current_app.__class__) is not Flask or not current_app
    )  # without an application there is none
    fusion.init_app(app)
    app.teardown_appcontext(ended.append)

    def task() -> str:
        g.mine = 1
        return current_app.name

    assert run(fusion, a_job(), task) == "shop"
    assert ended == [None]
    failed = run(fusion, a_job(), lambda: 1 / 0)
    assert ended == [None, failed]
    assert not current_app
    assert fusion in middleware.registered


def test_a_request_of_flask_has_an_id_that_its_jobs_get(conn: redis.Redis) -> None:
    app = Flask("shop")
    Fusion(app)
    jobs: list[Any] = []

    @app.get("/")
    def index() -> str:
        jobs.append(Queue("q", conn).enqueue("tests.jobs.basic.noop"))
        return "done"

    answer = app.test_client().get("/", headers={"X-Request-ID": "r3"})
    assert answer.headers["X-Request-ID"] == "r3" == jobs[0].meta["request_id"]
    assert request_ids.request_id.get() is None
    other = app.test_client().get("/").headers["X-Request-ID"]
    assert other == jobs[1].meta["request_id"] != "r3"


# -- FastAPI


def test_a_task_runs_in_the_lifespan_of_its_application() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        steps.append("begun")
        try:
            yield {"name": "shop"}
        finally:
            steps.append("ended")

    in_lifespan = Lifespan(FastAPI(lifespan=lifespan))

    @in_lifespan
    async def task(fail: bool) -> str:
        if fail:
            raise ValueError("no")
        return str(in_lifespan.state["name"])

    assert asyncio.run(task(False)) == "shop"
    assert steps == ["begun", "ended"]
    with pytest.raises(ValueError, match="no"):
        asyncio.run(task(True))
    assert steps == ["begun", "ended"] * 2
    with pytest.raises(RuntimeError, match="@in_lifespan"):
        _ = in_lifespan.state


def test_a_plain_function_can_have_no_lifespan() -> None:
    with pytest.raises(TypeError, match="async def"):
        Lifespan("shop.main:app")(lambda: None)  # type: ignore[arg-type, return-value]


async def send(app: Any, path: str, headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers of the answer to a GET."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def answer(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "client": ("1.2.3.4", 5),
        "server": ("shop", 80),
    }
    await app(scope, receive, answer)
    assert sent[0]["status"] == 200
    return dict(sent[0]["headers"])


def test_an_endpoint_of_fastapi_gets_its_queue_and_its_jobs_the_id(conn: redis.Redis) -> None:
    app = FastAPI()
    carry_request_ids(app)
    assert any(isinstance(one, request_ids.RequestIds) for one in middleware.registered), "a worker only loads the application"
    jobs: list[Any] = []

    @app.get("/")
    async def index(queue: Orders) -> str:
        jobs.append(await queue.enqueue("tests.jobs.basic.noop"))
        return queue.name

    async def both() -> list[dict[bytes, bytes]]:
        async with AsyncQueue():
            first = await send(app, "/", [(b"x-request-id", b"r4")])
            app.dependency_overrides[ORDERS.dependency] = lambda: AsyncQueue("others")
            return [first, await send(app, "/", [])]

    given, made = asyncio.run(both())
    assert given[b"x-request-id"] == b"r4"
    assert [job.meta["request_id"].encode() for job in jobs] == [b"r4", made[b"x-request-id"]]
    assert [job.origin for job in jobs] == ["orders", "others"]
    assert request_ids.request_id.get() is None


# -- SQLAlchemy


def test_a_fork_has_none_of_its_parents_connections(tmp_path: Path) -> None:
    engine, shared = (create_engine(f"sqlite:///{tmp_path}/{name}.db", poolclass=QueuePool) for name in "ab")
    keep_apart(engine)
    for one in (engine, shared):
        with one.connect() as connection:
            connection.execute(text("SELECT 1"))
    pools: list[Any] = [engine.pool, shared.pool]
    assert [pool.checkedin() for pool in pools] == [1, 1]
    child = os.fork()
    if not child:
        left: list[Any] = [engine.pool, shared.pool]
        os._exit(0 if [pool.checkedin() for pool in left] == [0, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pools = [engine.pool, shared.pool]
    assert [pool.checkedin() for pool in pools] == [1, 1]  # here they go on


def test_a_session_is_its_jobs_and_ends_with_it(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db", poolclass=QueuePool)
    sessions = scoped_session(sessionmaker(engine), scopefunc=scope_of_job)
    outside = sessions()
    outside.execute(text("CREATE TABLE t (n int)"))
    outside.commit()
    job = context.CurrentJob({b"id": b"j1", b"execution_id": b"e1"})

    def task() -> None:
        context.set_current_job(job)
        assert sessions() is not outside
        sessions.execute(text("INSERT INTO t VALUES (1)"))  # never committed
        1 / 0  # noqa: B018

    try:
        assert isinstance(run(JobSessions(sessions), job, task), ZeroDivisionError)
        assert not sessions.registry.has()
    finally:
        context.set_current_job(None)
    assert sessions() is outside
    assert outside.execute(text("SELECT count(*) FROM t")).scalar() == 0
    sessions.remove()
    pool: Any = engine.pool
    assert pool.checkedout() == 0
