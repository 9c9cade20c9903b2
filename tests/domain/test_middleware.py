"""Producer middleware: what it sees, may change and may refuse, and calls that it holds back."""

from __future__ import annotations

import asyncio
import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Batch, Job, Queue, chain, job, signature
from fusion.exceptions import ConfigurationError, DuplicateJob, OptionError, QueueFull, StoreUnavailable
from fusion.middleware import Enqueueing, Held, ProducerMiddleware, WorkerMiddleware, register, send_together, unregister
from fusion.settings import Settings, get_settings, use_settings
from fusion.store.access import broker_of
from fusion.store.scripting.host import Steps
from fusion.store.write.queue_calls import QueueCalls
from tests.jobs import basic
from tests.kit.hands import Hand, wire


class Notes(ProducerMiddleware):
    """Writes down its calls, under its name."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        self.seen.append((self.name, "before", [out.id for out in enqueueing.jobs]))

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        self.seen.append((self.name, "after", [found.id for found in jobs]))


class Holds(ProducerMiddleware):
    knows_transactions = True

    def __init__(self) -> None:
        self.held: list[Held] = []

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        if enqueueing.on_commit is not False:
            self.held.append(enqueueing.hold())


@pytest.fixture
def registered() -> Iterator[Callable[..., Any]]:
    """Registers until the test is over."""
    made: list[Any] = []

    def add(middleware: Any) -> Any:
        made.append(register(middleware))
        return made[-1]

    yield add
    for one in made:
        with suppress(ValueError):  # the test has done so
            unregister(one)
    use_settings(None)


@job("marked")
def marked(number: int) -> None:
    """A task with `.delay()`."""


def _async(call: Callable[[AsyncQueue], Any]) -> Any:
    async def whole() -> Any:
        async with AsyncQueue("r") as queue:
            return await call(queue)

    return asyncio.run(whole())


WAYS: dict[str, tuple[int, Callable[[redis.Redis], Any]]] = {
    "enqueue": (1, lambda conn: Queue("r", conn).enqueue(basic.add, 1, b=2)),
    "options": (1, lambda conn: Queue("r", conn).options(priority=2).enqueue(basic.add, 1, b=2)),
    "call": (1, lambda conn: Queue("r", conn).enqueue_call(basic.add, (1,), {"b": 2})),
    "in": (1, lambda conn: Queue("r", conn).enqueue_in(60, basic.noop)),
    "delay": (1, lambda conn: marked.delay(1)),
    "signature": (1, lambda conn: signature(basic.noop).enqueue("r", conn)),
    "many": (600, lambda conn: Queue("r", conn).enqueue_many([Queue.prepare_data(basic.noop) for _ in range(600)])),
    "generator": (3, lambda conn: Queue("r", conn).enqueue_many((Queue.prepare_data(basic.noop) for _ in range(3)), spread=9)),
    "chain": (3, lambda conn: chain(basic.noop, signature(basic.noop).set(queue="other"), basic.noop).enqueue("r", conn)),
    "graph": (80, lambda conn: _graph(conn)),
    "parents": (1, lambda conn: _parents(conn)),
    "async": (1, lambda conn: _async(lambda queue: queue.enqueue(basic.add, 1, b=2))),
    "async many": (2, lambda conn: _async(lambda q: q.enqueue_many([q.prepare_data(basic.noop), q.prepare_data(basic.noop)]))),
}


def _graph(conn: redis.Redis) -> list[Job]:
    first = Queue.prepare_data(basic.noop)
    rest = [Queue.prepare_data(basic.noop, depends_on=first) for _ in range(79)]
    return Queue("r", conn).enqueue_many([first, *rest])


def _parents(conn: redis.Redis) -> Job:
    found = [
        basic_job.id
        for basic_job in Queue("r", conn).enqueue_many([Queue.prepare_data(basic.noop) for _ in range(70)], on_commit=False)
    ]
    return Queue("r", conn).enqueue(basic.noop, depends_on=found)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "parents"])
def test_every_way_goes_through_it_once_a_call_the_first_outermost(
    conn: redis.Redis, registered: Callable[..., Any], way: str
) -> None:
    count, call = WAYS[way]
    seen: list[Any] = []
    registered(Notes("outer", seen))
    registered(Notes("inner", seen))
    made = call(conn)
    ids = [found.id for found in made] if isinstance(made, list) else [made.id]
    assert len(ids) == count
    assert [told[:2] for told in seen] == [("outer", "before"), ("inner", "before"), ("inner", "after"), ("outer", "after")]
    assert all(sorted(told[2]) == sorted(ids) for told in seen)
    assert all(Job.exists(one, conn) for one in ids)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_deferred_enqueue_is_written_under_its_promised_ids(
    conn: redis.Redis, registered: Callable[..., Any], way: str
) -> None:
    count, call = WAYS[way]
    seen: list[Any] = []
    registered(Notes("n", seen))
    holds = registered(Holds())
    made = call(conn)
    ids = [found.id for found in made] if isinstance(made, list) else [made.id]
    assert len(ids) == count
    assert not any(Job.exists(one, conn) for one in ids)
    (held,) = holds.held
    assert sorted(held.job_ids) == sorted(ids)
    assert ("n", "after") not in [told[:2] for told in seen if told[2] == held.job_ids]
    jobs = held.send()
    assert [found.id for found in jobs] == ids
    assert all(Job.exists(one, conn) for one in ids)
    assert held.send() == jobs, "once"
    assert seen[-1] == ("n", "after", ids)


def test_meta_is_changed_before_it_is_stored_and_signed(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    class Tracing(ProducerMiddleware):
        def before_enqueue(self, enqueueing: Enqueueing) -> None:
            for out in enqueueing.jobs:
                seen.append((out.func_name, out.args, out.kwargs, out.meta.copy(), out.options["job_timeout"], out.priority))
                out.meta["trace"] = "é" * 3

    seen: list[Any] = []
    use_settings(Settings.load(secret_keys=f"k1:{secrets.token_urlsafe(32)}"))
    registered(Tracing)
    given: dict[str, int] = {}
    made = Queue("r", conn).enqueue(basic.add, 1, b=given, meta={"own": 1}, job_timeout="1m", priority="high")
    assert seen == [("tests.jobs.basic.add", (1,), {"b": given}, {"own": 1}, 60, 2)] and seen[0][2]["b"] is given
    assert Job.fetch(made.id, conn).meta == made.meta == {"own": 1, "trace": "é" * 3}
    many = Queue("r", conn).enqueue_many([Queue.prepare_data(basic.noop)])
    assert Job.fetch(many[0].id, conn).meta == {"trace": "é" * 3}
    keyring = get_settings().keyring
    claimed = Hand(broker_of(conn), "r").claim(2)
    assert keyring is not None and [keyring.flaw(one.id, "r", one.fields) for one in claimed] == ["", ""]


def test_a_hook_that_raises_refuses_the_call_and_is_named(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    class Refuses(ProducerMiddleware):
        def before_enqueue(self, enqueueing: Enqueueing) -> None:
            raise PermissionError("not now")

    holds, seen = registered(Holds()), list[Any]()
    registered(Refuses)
    registered(Notes("later", seen))
    with wire(conn) as sent:
        for call in (lambda: Queue("r", conn).enqueue(basic.noop), lambda: Queue("r", conn).enqueue_many([])):
            with pytest.raises(PermissionError, match="not now") as caught:
                call()
            assert "before_enqueue of tests.domain.test_middleware." in caught.value.__notes__[0]
        assert [held.send() for held in holds.held] == [[], []], "they were dropped"
    assert (sent, seen) == ([], [])


def test_an_error_after_an_enqueue_is_logged_and_changes_nothing(
    conn: redis.Redis, registered: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(ProducerMiddleware):
        def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
            raise LookupError("too late")

    seen: list[Any] = []
    registered(Notes("outer", seen))
    registered(Raises)
    made = Queue("r", conn).enqueue(basic.noop)
    assert Job.exists(made.id, conn)
    assert [told[:2] for told in seen] == [("outer", "before"), ("outer", "after")]
    assert "LookupError: too late" in caplog.text and "after_enqueue of" in caplog.text


def test_hooks_see_a_repeated_call_once(
    conn: redis.Redis, registered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    registered(Notes("n", seen))
    queue = Queue("r", conn)
    enqueue_steps = QueueCalls.enqueue_steps
    failures = [2]

    def loses(self: QueueCalls, *given: Any) -> Steps[str]:
        found = yield from enqueue_steps(self, *given)
        failures[0] -= 1
        if failures[0] >= 0:
            raise StoreUnavailable("the answer is lost")
        return found

    monkeypatch.setattr(QueueCalls, "enqueue_steps", loses)
    with pytest.raises(StoreUnavailable) as caught:
        queue.enqueue(basic.noop)
    error = caught.value
    with pytest.raises(StoreUnavailable) as again:
        error.repeat()
    job = again.value.repeat()
    assert isinstance(job, Job) and queue.count == 1
    error.repeat()
    assert [told[:2] for told in seen] == [("n", "before"), ("n", "after")]


def test_held_calls_are_sent_together_each_with_its_own_error(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    holds = registered(Holds())
    queue, other = Queue("r", conn), Queue("other", conn)
    queue.enqueue(basic.noop, job_id="taken", on_commit=False)
    ids = [queue.enqueue(basic.noop).id for _ in range(3)]
    ids += [other.enqueue(basic.noop).id, queue.enqueue(basic.noop).id]
    ids += [found.id for found in other.enqueue_many([Queue.prepare_data(basic.noop) for _ in range(2)])]
    with wire(conn) as sent:
        found = send_together(holds.held)
    assert sent == ["EVALSHA"] * 2, "a call a queue"
    assert [one.id for jobs in found for one in jobs] == ids
    assert queue.get_job_ids()[1:] == [*ids[:3], ids[4]]
    holds.held.clear()

    duplicate, fine = queue.enqueue(basic.noop, job_id="taken"), queue.enqueue(basic.noop)
    full = queue.enqueue(basic.noop, max_queue_length=1)
    waits = queue.enqueue(basic.noop, depends_on=fine)
    found = send_together(holds.held)
    assert [type(one) for one in found] == [DuplicateJob, list, QueueFull, list], found
    assert not isinstance(found[0], list) and found[0].job_id == duplicate.id  # type: ignore[attr-defined]
    assert Job.fetch(waits.id, conn).get_status() == "deferred" and not Job.exists(full.id, conn)


def test_deferred_enqueues_stop_at_the_first_outage(registered: Callable[..., Any]) -> None:
    holds = registered(Holds())
    away = redis.Redis(port=1, socket_connect_timeout=0.1)
    queue = Queue("r", away)
    ids = [queue.enqueue(basic.noop).id for _ in range(3)]
    far = queue.enqueue(basic.noop, max_queue_length=5)
    found = send_together(holds.held)
    assert all(isinstance(error, StoreUnavailable) for error in found), found
    assert [error.job_ids for error in found] == [(one,) for one in (*ids, far.id)]  # type: ignore[union-attr]
    assert found[-1].nothing_written  # type: ignore[union-attr]
    with pytest.raises(StoreUnavailable):
        found[-1].repeat()  # type: ignore[union-attr]


def test_holding_has_its_rules(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    class SendsAtOnce(ProducerMiddleware):
        def before_enqueue(self, enqueueing: Enqueueing) -> None:
            enqueueing.hold().send()

    early = registered(SendsAtOnce())
    with pytest.raises(RuntimeError, match="still being made"):
        Queue("r", conn).enqueue(basic.noop)
    unregister(early)
    registered(early)
    registered(Holds)
    with pytest.raises(RuntimeError):
        Queue("r", conn).enqueue(basic.noop)
    assert Queue("r", conn).count == 0


def test_a_batch_is_closed_when_what_is_held_of_it_was_sent(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    holds = registered(Holds())
    with Batch(queue=Queue("r", conn)) as batch:
        first = batch.enqueue(basic.noop)
        batch.add("r", [Queue.prepare_data(basic.noop)])
    assert batch.status == "open"
    assert all(isinstance(one, list) for one in send_together(holds.held))
    assert batch.status == "running" and batch.info().total == 2
    assert Job.fetch(first.id, conn).get_status() == "queued"


def test_on_commit_needs_somebody_who_knows_of_transactions(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    queue = Queue("r", conn)
    calls: list[Callable[..., Any]] = [
        lambda **option: queue.enqueue(basic.noop, **option),
        lambda **option: queue.enqueue_many([Queue.prepare_data(basic.noop)], **option),
        lambda **option: chain(basic.noop, basic.noop).enqueue(queue, **option),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"fusion\.contrib\.django"):
            call(on_commit=True)
        call(on_commit=False)
        call(on_commit=None)
    with pytest.raises(OptionError, match="True or False"):
        queue.enqueue(basic.noop, on_commit="yes")
    with pytest.raises(OptionError, match="enqueue_many"):
        Queue.prepare_data(basic.noop, on_commit=True)  # type: ignore[call-arg]
    assert queue.count == 8 - 2
    holds = registered(Holds())
    for call in calls:
        call(on_commit=True)
    assert len(holds.held) == 3


def test_middleware_by_the_settings(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, registered: Callable[..., Any]) -> None:
    registered(Notes("registered", Named.seen))
    use_settings(Settings.load(middleware=[f"{__name__}.Named"]))
    Queue("r", conn).enqueue(basic.noop)
    assert [told[:2] for told in Named.seen][:2] == [("named", "before"), ("registered", "before")]
    use_settings(Settings.load(middleware="tests.domain.test_middleware.Nobody"))
    with pytest.raises(ConfigurationError, match=r"tests\.domain\.test_middleware\.Nobody.*correct it"):
        Queue("r", conn).enqueue(basic.noop)
    with pytest.raises(ConfigurationError, match="not a dotted path"):
        Settings.load(middleware="a b")
    with pytest.raises(TypeError, match="ProducerMiddleware"):
        register(object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not registered"):
        unregister(WorkerMiddleware())


class Named(Notes):
    seen: list[Any] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("named", Named.seen)


def test_without_middleware_an_enqueue_is_what_it_was(conn: redis.Redis, registered: Callable[..., Any]) -> None:
    """The same commands, and the same bytes, also with hooks that do nothing; a JobData that is pickled takes no arguments along."""
    queue, marks = Queue("r", conn), list[tuple[int, ...]]()
    options: dict[str, Any] = {"meta": {"a": 1}, "priority": 2}
    queue.enqueue(basic.noop)
    for middleware in (None, WorkerMiddleware(), ProducerMiddleware()):
        if middleware is not None:
            registered(middleware)
        with wire(conn) as sent:
            made = queue.enqueue(basic.add, 1, 2, job_id=f"j{len(marks)}", **options)
        assert sent == ["EVALSHA"]
        marks.append(tuple(sorted(len(f"{name}{value}") for name, value in made._fields.items() if name != "created_at")))
    assert len(set(marks)) == 1
    data = Queue.prepare_data(basic.add, (1, 2))
    assert data.call == ((1, 2), {})
    again = pickle.loads(pickle.dumps(data))
    assert again == data and again.call is None
