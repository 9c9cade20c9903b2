"""Work for the whole fleet: each process plans it, and does it only if it has not heard for a while that another did."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from fusion.runtime import maintenance
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from tests.kit.scripted_broker import ScriptedBroker

LOG = logging.getLogger("duties")
#: Each duty, what is heard of it, the call, and seconds between two of its calls.
DUTIES = [
    pytest.param("promote -1 -1 -1", "promote", 1.0, id="promote"),
    pytest.param("recover 0 0", "reap", 5.0, id="reap"),
    pytest.param("recover 0 0", "prune", 5.0, id="prune"),
    pytest.param("recover 0 0", "running_operations", 5.0, id="operations"),
    pytest.param("sample", "sample", 10.0, id="sample"),
    pytest.param("clean", "clean", 30.0, id="clean"),
]


class _Fleet:
    """One process's duties, with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.now = ScriptedBroker(), 1000.0
        settings = Settings(lease=30.0, reap_interval=5.0, maintenance_interval=30.0, name="w")
        self.duties = Maintenance(settings, self.broker, RedisLink(LOG), ServedQueues(()), LOG)  # type: ignore[arg-type]
        monkeypatch.setattr(maintenance, "time", type("Clock", (), {"monotonic": staticmethod(lambda: self.now)}))

    def calls(self, seconds: float, heard: Callable[[float], str] = lambda at: "") -> list[str]:
        """Its calls within this many seconds; the messages that it gets at each hundredth of them."""
        self.broker.calls.clear()
        for _ in range(round(seconds * 100)):
            if text := heard(self.now):
                self.duties.heard(text)
            if self.duties.next_at <= self.now:
                self.duties.tick(self.now)
            self.now += 0.01
        return self.broker.calls


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> _Fleet:
    made = _Fleet(monkeypatch)
    monkeypatch.setattr(made.broker, "tend_batches", lambda: (made.broker._called("tend_batches"), (0, None))[1], raising=False)
    made.calls(0.05)
    assert set(made.broker.calls) >= {"promote", "reap", "prune", "sample", "clean", "running_operations"}, "all at the start"
    return made


@pytest.mark.parametrize(("text", "call", "interval"), DUTIES)
def test_alone_it_does_each_duty_in_time(fleet: _Fleet, text: str, call: str, interval: float) -> None:
    assert 3 <= fleet.calls(3.2 * interval).count(call) <= 4


@pytest.mark.parametrize(("text", "call", "interval"), DUTIES)
def test_what_another_does_it_does_not(fleet: _Fleet, text: str, call: str, interval: float) -> None:
    fleet.duties.heard(text)  # of its own
    said_at = [0.0]

    def heard(now: float) -> str:
        if now - said_at[0] < interval * 0.9:
            return ""
        said_at[0] = now
        return text

    assert call not in fleet.calls(3 * interval, heard)
    assert fleet.calls(interval * 1.0 + 0.02).count(call) == 1, "the other is silent: within the interval since it was heard"


def test_a_look_is_one_interval_after_the_last_at_most(fleet: _Fleet) -> None:
    """However much another process tells, and whenever this one did the work itself."""
    for said in ("promote -1 -1 -1", "promote 86400000 -1 5", "promote 990 1 2"):
        fleet.duties.heard(said)
        fleet.duties.heard(said)
        assert fleet.duties.next_at <= fleet.now + 1.0
        assert "promote" in fleet.calls(1.02)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("promote 200 -1 -1", "promote"),
        ("promote -1 200 -1", "expire"),
        ("promote -1 -1 200", "tend_batches"),
        ("expire 200", "expire"),
        ("tend 200", "tend_batches"),
    ],
)
def test_an_instant_that_another_found_is_this_ones_too(fleet: _Fleet, text: str, call: str) -> None:
    fleet.duties.heard("promote -1 -1 -1")  # its own
    fleet.duties.heard(text)
    assert call not in fleet.calls(0.2)
    assert call in fleet.calls(0.05), "a moment later than the one that found it"


def test_operations_that_another_found_are_carried_on_by_all(fleet: _Fleet) -> None:
    fleet.duties.heard("recover 0 1")
    assert "running_operations" in fleet.calls(0.05)


def test_what_was_recovered_a_while_ago_is_due_that_much_sooner(fleet: _Fleet) -> None:
    """A process that has just started tells of the last look, which was not its own."""
    fleet.duties.heard("recover 2400 0")
    assert "reap" in fleet.calls(2.6)


def test_its_own_words_change_nothing(fleet: _Fleet) -> None:
    """It has done it at its time, and will again; another that does it meanwhile is heard."""
    before = fleet.duties.next_at
    fleet.duties.heard("promote -1 -1 -1")
    assert fleet.duties.next_at == before
    fleet.now += 0.5
    fleet.duties.heard("promote -1 -1 -1")
    assert fleet.duties.next_at > before


@pytest.mark.parametrize(
    "text", ["", "promote", "promote 1", "promote a b c", "expire", "recover", "later -1", "promote 1 2 3 4", "\x00"]
)
def test_words_that_it_does_not_know_change_nothing(fleet: _Fleet, text: str) -> None:
    fleet.duties.heard("promote -1 -1 -1")
    before = fleet.duties.next_at
    fleet.duties.heard(text)
    assert fleet.duties.next_at == before
    assert "promote" in fleet.calls(1.02)


def test_a_look_asked_for_a_moment_before_a_planned_one_is_that_one(fleet: _Fleet) -> None:
    fleet.duties.heard("promote -1 -1 -1")
    fleet.duties.heard("promote 300 -1 -1")
    planned = fleet.duties.next_at
    fleet.duties.due(fleet.now + 0.3)  # each worker's turn says so
    assert fleet.duties.next_at == planned
    fleet.duties.due(fleet.now + 0.2)
    assert fleet.duties.next_at == fleet.now + 0.2
