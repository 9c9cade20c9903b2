"""Turns on a line of their own: sent now, heard of later, whatever comes in between."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from math import inf

import pytest
import redis
from redis import exceptions as errors

from fusion.store.client.connections import connect
from fusion.store.layout.records import Commit, Turn, TurnRequest
from fusion.store.scripting.script_line import ScriptLine
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, outcome, put
from tests.kit.private_redis import PrivateRedis
from tests.kit.servers import LateAnswers, ScriptedServer

Scripted = Callable[[Callable[[int], bytes | None]], ScriptedServer]
Made = tuple[Broker, Hand, ScriptLine[Turn]]


def made(url: str, **options: float) -> Made:
    query = "".join(f"&{name}={value}" for name, value in options.items())
    broker = Broker(connect(url + query, "worker"))
    return broker, Hand(broker, "q", name=f"host.{time.monotonic_ns()}"), broker.turn_line()


@pytest.fixture
def three(redis_url: str, conn: redis.Redis) -> Iterator[Made]:
    found = made(redis_url)
    yield found
    found[2].drop()


def send(three: Made, *commits: Commit, slots: int = 0, again: bool = False) -> bool:
    _, hand, line = three
    hand.token += not again
    return line.send(
        hand.broker.turn_call(TurnRequest(hand.name, hand.incarnation, hand.token, commits, ["q"], [0] * slots, 60, 420))
    )


def enqueue(broker: Broker, *names: str, size: int = 0) -> None:
    for name in names:
        put(broker, "q", name, data="x" * size)


def heard(line: ScriptLine[Turn], pieces: float = inf) -> None:
    """Do as a loop does, until the answer is there, the connection ended or this many pieces of it came."""
    poll, fd = select.poll(), line.fileno()
    assert fd is not None
    while line.next_at and line.fileno() is not None and pieces > 0:
        poll.register(fd, select.POLLIN | (select.POLLOUT if line.wants_write else 0))
        ((_, event),) = poll.poll(10_000)
        if event & select.POLLOUT:
            line.flush()
        if event & ~select.POLLOUT:
            line.receive()
            pieces -= 1


def test_a_turn_is_heard_of_later(three: Made) -> None:
    broker, hand, line = three
    enqueue(broker, "a", "b")
    assert (line.busy, line.next_at, line.fileno()) == (False, inf, None)
    hand.turn()  # from here on the server knows the script
    assert send(three, slots=1)
    assert (line.busy, line.next_at > time.monotonic()) == (True, True)
    enqueue(broker, "c")  # another call meanwhile, on another connection
    heard(line)
    assert line.next_at == 0.0
    (job,) = line.answer().jobs
    assert (job.id, line.busy, line.next_at) == ("a", False, inf)
    held = line.fileno()
    assert send(three, outcome(job), slots=2)
    heard(line)
    turn = line.answer()
    assert (turn.answers, [each.id for each in turn.jobs]) == (["ok"], ["b", "c"])
    assert line.fileno() == held, "one connection for all of them"


def test_a_server_that_does_not_know_the_script_says_so(three: Made, conn: redis.Redis) -> None:
    _, hand, line = three
    hand.turn()
    conn.script_flush()
    assert send(three)
    heard(line)
    with pytest.raises(errors.NoScriptError):
        line.answer()
    hand.turn()
    assert send(three), "the line is good"
    heard(line)
    assert line.answer().status == "ok"


def test_large_results_go_out_in_pieces_and_other_calls_pass_them(three: Made) -> None:
    broker, hand, line = three
    enqueue(broker, "a", "b")
    first, second = hand.claim(2)
    assert send(three, outcome(first, fields={"result": b"x" * 30_000_000}))
    assert line.wants_write, "nothing here shows partial writes if the socket takes 30 MB at once"
    assert hand.extend(first, second) == (True, ["ok", "ok"])
    before = line.next_at
    heard(line)
    assert line.answer().answers == ["ok"]
    assert before < inf
    assert broker.connection.hstrlen("rq:job:a", "result") == 30_000_000


def test_large_answers_come_in_pieces(three: Made) -> None:
    broker, _, line = three
    enqueue(broker, *"abcdefgh", size=2_000_000)
    assert Hand(broker, "other").turn().status == "ok"
    assert send(three, slots=8)
    heard(line)
    assert [len(job.fields[b"data"]) for job in line.answer().jobs] == [2_000_000] * 8


def test_silence_is_an_error_and_a_late_answer_is_never_read(private_redis: PrivateRedis) -> None:
    three = broker, hand, line = made(private_redis.url, socket_timeout=0.3)
    enqueue(broker, "a", "b")
    hand.turn()
    assert send(three, slots=1)
    heard(line)
    line.answer()
    private_redis.pause()
    assert send(three, slots=1)
    assert 0.1 < line.next_at - time.monotonic() <= 0.3
    with pytest.raises(errors.TimeoutError):
        line.answer()
    assert (line.busy, line.fileno()) == (False, None)
    private_redis.resume()
    assert send(three, slots=1, again=True)
    heard(line)
    assert [job.id for job in line.answer().jobs] == ["b"], "of the same token: the same job"
    line.drop()


def test_each_piece_of_an_answer_is_a_sign_of_life(scripted: Scripted) -> None:
    server = scripted(lambda n: b"*7\r\n$2\r\nok\r\n")
    broker = Broker(connect(f"{server.url}?socket_timeout=30", "worker"), server_version=(7,))
    line = broker.turn_line()
    assert line.send(broker.turn_call(TurnRequest("w", "i", 1, [], ["q"], [], 60, 420)))
    first = line.next_at
    heard(line, pieces=1)
    assert line.next_at > first
    line.drop()


def test_a_connection_that_breaks_while_nothing_was_asked_is_made_anew(three: Made) -> None:
    _, hand, line = three
    hand.turn()
    assert send(three)
    heard(line)
    line.answer()
    assert line.channel is not None
    line.channel._sock.shutdown(socket.SHUT_RDWR)
    line.receive()
    assert (line.fileno(), line.busy, line.next_at) == (None, False, inf)
    assert send(three), "on a new connection"
    heard(line)
    assert line.answer().status == "ok"


def test_a_connection_that_breaks_amid_a_call_is_the_calls_trouble(scripted: Scripted) -> None:
    server = scripted(lambda n: None)
    broker = Broker(connect(server.url, "worker"), server_version=(7,))
    line = broker.turn_line()
    for connections in (1, 2):
        assert line.send(broker.turn_call(TurnRequest("w", "i", 1, [], ["q"], [], 60, 420)))
        heard(line)
        assert (line.fileno(), line.busy, line.next_at) == (None, True, 0.0)
        with pytest.raises(errors.ConnectionError):
            line.answer()
        assert (server.connections, line.busy) == (connections, False)


@pytest.mark.parametrize(("reply", "kept"), [("READONLY it is a replica", False), ("NOSCRIPT none", True)])
def test_a_server_that_refuses_is_connected_to_anew(scripted: Scripted, reply: str, kept: bool) -> None:
    server = scripted(lambda n: f"-{reply}\r\n".encode())
    broker = Broker(connect(server.url, "worker"), server_version=(7,))
    line = broker.turn_line()
    assert line.send(broker.turn_call(TurnRequest("w", "i", 1, [], ["q"], [], 60, 420)))
    heard(line)
    with pytest.raises(errors.ResponseError):
        line.answer()
    assert (line.busy, line.fileno() is not None) == (False, kept)
    line.drop()


def test_an_answer_that_nobody_asked_for_ends_the_connection(scripted: Scripted) -> None:
    server = scripted(lambda n: b"+OK\r\n+OK\r\n")
    broker = Broker(connect(server.url, "worker"), server_version=(7,))
    line = broker.turn_line()
    assert line.send(broker.turn_call(TurnRequest("w", "i", 1, [], ["q"], [], 60, 420)))
    heard(line)
    with pytest.raises(errors.InvalidResponse):
        line.answer()
    assert line.fileno() is None


def test_a_server_that_can_not_be_reached(free_tcp_port: int) -> None:
    broker = Broker(connect(f"redis://127.0.0.1:{free_tcp_port}/0", "worker"), server_version=(7,))
    line = broker.turn_line()
    with pytest.raises(errors.ConnectionError):
        line.send(broker.turn_call(TurnRequest("w", "i", 1, [], ["q"], [], 60, 420)))
    assert (line.busy, line.next_at) == (False, inf)


def test_a_client_of_the_programs_own_is_used_by_its_own_methods(redis_url: str, conn: redis.Redis) -> None:
    broker = Broker(redis.Redis.from_url(redis_url))
    hand, line = Hand(broker, "q"), broker.turn_line()
    assert not send((broker, hand, line))
    assert not line.busy


def test_answers_may_be_slow(private_redis: PrivateRedis) -> None:
    slow = LateAnswers(private_redis.url.removeprefix("unix://").partition("?")[0], 0.3)
    three = _, hand, line = made(f"{slow.url}{'&' if '?' in slow.url else '?'}socket_timeout=5")
    hand.turn()
    began = time.monotonic()
    assert send(three)
    assert time.monotonic() - began < 0.25, "it waits for nothing"
    heard(line)
    assert line.answer().status == "ok"
    line.drop()
    slow.close()
