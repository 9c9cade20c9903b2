"""Why a worker takes no jobs, and what its free slots may take while it does."""

from __future__ import annotations

import logging

import pytest

from fusion.kernel.memory import Bound, MemoryThrottle
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.worker.admission import Admission, Blocked
from tests.kit.scripted_broker import ScriptedBroker

LOG = logging.getLogger("admission")
CLOSING = {Blocked.RECYCLING, Blocked.THROTTLED, Blocked.QUIET}


class Memory:
    """Percent in use, as a reading."""

    used = 50.0

    def __call__(self) -> float:
        return self.used


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker()


@pytest.fixture
def entry(broker: ScriptedBroker) -> Membership:
    link = RedisLink(LOG)
    listing = WorkerListing(Settings(), broker, ServedQueues(["sms"]), SupervisorLine())  # type: ignore[arg-type]
    member = Membership(link, listing, "w", 10.0)
    member.enter()
    return member


@pytest.mark.parametrize("reason", list(Blocked))
def test_each_reason_is_set_once_and_taken_back(reason: Blocked) -> None:
    admission = Admission(4, 1, None, LOG)
    assert (admission.blocked, admission.open) == (set(), True)
    assert [admission.block(reason), admission.block(reason)] == [True, False]
    assert admission.blocked == {reason}
    assert admission.open == (reason not in CLOSING)
    assert bool(admission.floors(4, 0)) == admission.open
    assert [admission.block(reason, False), admission.block(reason, False)] == [True, False]
    assert (admission.blocked, admission.open) == (set(), True)


@pytest.mark.parametrize("first", list(Blocked))
@pytest.mark.parametrize("second", list(Blocked))
def test_reasons_do_not_hide_each_other(first: Blocked, second: Blocked) -> None:
    admission = Admission(4, 1, None, LOG)
    admission.block(first)
    admission.block(second)
    admission.block(first, False)
    left = {second} - {first}
    assert (admission.blocked, admission.open) == (left, not left & CLOSING)


def test_quiet_is_shown_in_the_entry(broker: ScriptedBroker, entry: Membership) -> None:
    admission = Admission(4, 0, None, LOG)
    assert [admission.set_quiet(quiet, entry) for quiet in (False, True, True)] == [False, True, False]
    entry.renew()
    assert broker.entries[-1][1]["quiet"] == "1"
    assert admission.set_quiet(False, entry)
    entry.renew()
    assert broker.entries[-1][1]["quiet"] == ""


@pytest.mark.parametrize(
    ("readings", "blocked", "resumed"),
    [
        ([50], [False], [False]),
        ([95, 95, 85, 79], [True, True, True, False], [False, False, False, True]),
        ([95, 70, 95], [True, False, True], [False, True, False]),
        ([90, 80], [True, False], [False, True]),
        ([89.9], [False], [False]),
    ],
)
def test_memory(entry: Membership, readings: list[float], blocked: list[bool], resumed: list[bool]) -> None:
    memory = Memory()
    admission = Admission(4, 0, MemoryThrottle([Bound("RAM", 90, 80, memory)], 5.0), LOG)
    seen = []
    for n, used in enumerate(readings):
        memory.used = used
        seen.append((admission.tick(5.0 * n, entry), Blocked.THROTTLED in admission.blocked))
        assert admission.throttle and admission.throttle.next_at == 5.0 * n + 5.0
        assert not admission.tick(5.0 * n + 4.9, entry), "not due"
    assert seen == list(zip(resumed, blocked, strict=True))
