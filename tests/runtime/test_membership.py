"""Membership: a name, a heartbeat, and what happens when either is gone. Redis answers from a script."""

from __future__ import annotations

import logging
from math import inf

import pytest

from fusion.exceptions import SchemaMismatch
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.redis_link import CallRefused, RedisAway, RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from tests.kit.scripted_broker import ScriptedBroker

LOG = logging.getLogger("membership")
SETTINGS = Settings(lease=30.0)


class Line(SupervisorLine):
    """A supervisor that receives names."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def say(self, word: str, value: str = "") -> None:
        self.heard.append(f"{word} {value.split()[0]}")


class Member(Membership):
    """A worker's, with all that it stands on."""

    def __init__(self, broker: ScriptedBroker, name: str | None = "w") -> None:
        self.link, self.line, self.vanished = RedisLink(LOG), Line(), 0
        listing = WorkerListing(SETTINGS, broker, ServedQueues(["sms", "web*"]), self.line)  # type: ignore[arg-type]
        super().__init__(self.link, listing, name, SETTINGS.lease / 3, self._count)

    def _count(self) -> None:
        self.vanished += 1


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker()


@pytest.mark.parametrize(
    ("taken", "name"), [([], "w"), (["w"], "w.1"), (["w", "w.1"], "w.2"), (["w", "w.1", "w.2", "w.3"], "w.4"), (["w.1"], "w")]
)
def test_a_taken_name_gets_a_number(broker: ScriptedBroker, taken: list[str], name: str) -> None:
    broker.names.update(taken)
    member = Member(broker)
    member.enter()
    assert member.name == name
    assert member.line.heard == [f"NAME {entered}" for entered, _ in broker.entries], (
        "the supervisor receives each before it is entered"
    )


def test_without_a_name_it_is_called_by_host_and_process(broker: ScriptedBroker) -> None:
    assert "." in Member(broker, None).name


def test_two_have_two_incarnations(broker: ScriptedBroker) -> None:
    assert Member(broker).incarnation != Member(broker).incarnation


@pytest.mark.parametrize("now", [0.0, 5.0, 1e9])
def test_nothing_is_due_before_it_has_entered(broker: ScriptedBroker, now: float) -> None:
    member = Member(broker)
    assert (member.next_at, member.beat(now, []), broker.calls) == (inf, [], [])


@pytest.mark.parametrize(
    ("held", "lost", "answers"),
    [
        ([], [], []),
        ([("a", "1")], [], ["ok"]),
        ([("a", "1"), ("b", "2")], ["b"], ["ok", "lost"]),
        ([("a", "1"), ("b", "2"), ("c", "3")], ["a", "c"], ["lost", "ok", "lost"]),
    ],
)
def test_a_sign_of_life_renews_what_is_held(
    broker: ScriptedBroker, held: list[tuple[str, str]], lost: list[str], answers: list[str]
) -> None:
    broker.lost.update(lost)
    member = Member(broker)
    member.enter()
    now = member.next_at
    assert member.beat(now - 0.01, held) == []
    assert broker.leases == []
    assert member.beat(now, held) == answers
    assert broker.leases == [held]
    assert member.next_at == now + SETTINGS.lease / 3


@pytest.mark.parametrize("field", ["quiet", "throttled"])
def test_a_note_is_shown_at_once_and_moves_no_sign_of_life(broker: ScriptedBroker, field: str) -> None:
    member = Member(broker)
    member.enter()
    due = member.next_at
    member.note(field, "1")
    assert member.next_at == 0
    member.beat(due - 5, [])
    assert broker.entries[-1][1][field] == "1"
    assert (member.next_at, broker.leases) == (due, [])
    member.note(field, "1")
    assert member.next_at == due, "nothing new"
    member.note(field, "")
    member.beat(due - 4, [])
    assert broker.entries[-1][1][field] == ""


@pytest.mark.parametrize("taken", [[], ["w"]])
def test_an_entry_that_vanished_is_made_anew(broker: ScriptedBroker, taken: list[str]) -> None:
    member = Member(broker)
    member.enter()
    broker.known = False
    broker.names.update(taken)
    member.beat(member.next_at, [("a", "1")])
    assert (member.vanished, broker.known, member.name) == (1, True, "w.1" if taken else "w")


@pytest.mark.parametrize("call", ["extend", "register"])
def test_a_call_without_an_answer_is_due_again(broker: ScriptedBroker, call: str) -> None:
    member = Member(broker)
    member.enter()
    now = member.next_at
    if call == "register":
        member.note("quiet", "1")
    broker.fails[call] = [OSError("gone")]
    with pytest.raises(RedisAway):
        member.beat(now, [])
    assert member.next_at <= now
    member.beat(now, [])
    assert member.next_at == now + SETTINGS.lease / 3


def test_a_refused_sign_of_life_is_not_tried_again_at_once(broker: ScriptedBroker) -> None:
    member = Member(broker)
    member.enter()
    now = member.next_at
    broker.fails["extend"] = [CallRefused("WRONGTYPE")]  # type: ignore[list-item]
    with pytest.raises(CallRefused):
        member.tick(now)
    assert member.next_at == now + SETTINGS.lease / 3
    assert member.link.away_since is None


@pytest.mark.parametrize("patient", [True, False])
def test_data_of_a_newer_version_are_waited_for_if_it_is_patient(broker: ScriptedBroker, patient: bool) -> None:
    broker.fails["register"] = [SchemaMismatch("too old"), SchemaMismatch("too old")]
    member = Member(broker)
    if not patient:
        with pytest.raises(SchemaMismatch):
            member.enter(patient=False)
        return
    member.enter()
    assert member.link.outdated
    with pytest.raises(RedisAway):
        member.link.attempt(lambda: None)
    assert member.leave() == 0
    assert "deregister" not in broker.calls, "it leaves data alone that it does not know"
    member.link.attempt(lambda: None)
    assert not member.link.outdated
    assert member.next_at < inf


def test_beat_now(broker: ScriptedBroker) -> None:
    member = Member(broker)
    member.enter()
    member.beat_now()
    member.tick(1.0)
    assert (len(broker.leases), member.next_at) == (1, 1.0 + SETTINGS.lease / 3)
