"""A host gets two at a time, and one that is slow holds up no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusion.courier.host_limits import HostLimits
from tests.courier.harness import Endpoint, World, allowing, answers
from tests.kit.hands import status_of
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

Start = Callable[..., Receiver]


def url_of(receiver: Receiver, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{receiver.port}/hook"


@pytest.mark.long
def test_never_more_than_two_at_a_time(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    jobs = world.end(url_of(server), 300)
    world.courier(allowing(server))
    eventually(lambda: endpoint.at_once == 2)
    endpoint.gate.set()
    world.settled(30, finished=300)
    assert endpoint.most == 2
    assert len(endpoint.posts) == 300
    assert not any("attempts" in world.fields(one) for one in world.deliveries()), "waiting for a turn is no try"
    world.check(jobs)


def test_two_names_of_a_server_are_two_hosts(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    world.end(url_of(server), 5)
    world.end(url_of(server, "localhost"), 5)
    world.courier(allowing(server))
    eventually(lambda: endpoint.at_once == 4)
    endpoint.gate.set()
    world.settled(finished=10)
    assert endpoint.most == 4


@pytest.mark.long
def test_a_host_that_hangs_delays_no_other(world: World, receiver: Start) -> None:
    """All that is for the slow one was there first, and is ten times more than a courier can hold."""
    slow, fast = Endpoint(), Endpoint()
    slow.gate.clear()
    stuck, server = receiver(slow), receiver(fast)
    world.end(url_of(stuck), 160)
    others = world.end(url_of(server, "localhost"), 20)
    world.courier(allowing(stuck, server))
    eventually(lambda: fast.jobs.keys() == set(others))
    assert slow.most == 2
    assert world.states()["finished"] <= 20
    slow.gate.set()
    world.settled(30, finished=180)
    assert slow.most == 2


def test_a_postponed_delivery_is_not_tried_and_costs_nothing(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    world.end(url_of(server), 40)
    courier = world.courier(allowing(server))
    eventually(lambda: world.conn.zcard("rq:scheduler:scheduled_jobs") >= 30)
    (put_off,) = (raw.decode() for raw in world.conn.zrange("rq:scheduler:scheduled_jobs", -1, -1))
    assert world.fields(put_off)["reason"] == f"http://127.0.0.1:{server.port} is busy with others"
    endpoint.gate.set()
    assert courier.stop(10)
    assert status_of(world.conn, put_off) in ("scheduled", "queued", "finished")
    assert world.states()["started"] == 0


def test_endpoints_that_fail_leave_room_for_others(world: World, receiver: Start) -> None:
    broken, good = Endpoint(answers(500)), Endpoint()
    first, second = receiver(broken), receiver(good)
    world.end(url_of(first), 50)
    world.end(url_of(second, "localhost"), 50)
    world.courier(allowing(first, second))
    eventually(lambda: len(broken.jobs) == 50 and world.states() == {"scheduled": 50, "finished": 50}, 30)


# -- the arithmetic


@pytest.fixture
def hosts() -> HostLimits:
    return HostLimits(2)


def test_a_free_host_takes_two_and_keeps_two_more_in_line(hosts: HostLimits) -> None:
    assert [hosts.wait("a", 0.0) for _ in range(4)] == [0.0] * 4
    assert [hosts.begin("a", 0.0) for _ in range(3)] == [True, True, False]
    assert hosts.wait("a", 0.0) > 0
    assert hosts.wait("b", 0.0) == 0
    hosts.done("a", 0.01, 0.01)
    assert hosts.begin("a", 0.01)


def test_a_slow_host_has_no_line(hosts: HostLimits) -> None:
    for i in range(6):
        hosts.wait("a", 15.0 * i)
        hosts.begin("a", 15.0 * i)
        hosts.done("a", 15.0 * (i + 1), 15.0)
    assert [hosts.wait("a", 90.0) > 0 for _ in range(3)] == [False, False, True]


def test_the_delay_grows_with_those_put_off_but_not_without_end(hosts: HostLimits) -> None:
    for _ in range(4):
        hosts.wait("a", 0.0)
    delays = [hosts.wait("a", 0.0) for _ in range(100_000)]
    assert delays == sorted(delays)
    assert delays[100] > 5 * delays[0]
    assert delays[-1] == 300.0


def test_the_delay_grows_with_the_time_without_an_answer(hosts: HostLimits) -> None:
    for _ in range(4):
        hosts.wait("a", 0.0)
    hosts.begin("a", 0.0)
    assert [hosts.wait("a", at) for at in (0.0, 4.0, 10.0)] == [0.05, 2.0, 5.0]
    hosts.done("a", 10.0, 10.0)
    assert hosts.wait("a", 100.0) > 1.0


def test_a_finished_request_frees_a_place_for_its_host(hosts: HostLimits) -> None:
    assert [hosts.wait("a", 0.0) for _ in range(4)] == [0.0] * 4
    hosts.leave("a")
    assert hosts.wait("a", 0.0) == 0


def test_hosts_that_nobody_needs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.courier.host_limits._KNOWN", 10)
    hosts = HostLimits(2)
    hosts.wait("busy", 0.0)
    hosts.begin("busy", 0.0)
    for i in range(50):
        hosts.wait(f"h{i}", 0.0)
        hosts.leave(f"h{i}")
    assert len(hosts._hosts) <= 11
    hosts.done("busy", 1.0, 1.0)
