"""Turns that are asked for, and heard of later."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest
from redis.exceptions import ConnectionError, NoPermissionError, NoScriptError

from fusion.exceptions import SchemaMismatch
from fusion.runtime.consumer import Consumer
from fusion.runtime.free_slots import ANY, NO_SLOTS, FreeSlots
from fusion.runtime.redis_link import RedisAway
from tests.kit.scripted_broker import ScriptedBroker, answer, claimed
from tests.runtime.test_consumer import DONE, ONE, consumer_of, turn


def asked(consumer: Consumer, slots: FreeSlots = NO_SLOTS) -> bool:
    consumer.begin_turn(slots)
    return consumer.send_async()


def test_outcomes_during_a_turn_wait_for_the_next_one() -> None:
    broker = ScriptedBroker(answer(claimed("c"), answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer, ONE)
    consumer.resolve(claimed("b"), DONE, 0.1)
    consumer.begin_turn(FreeSlots([ANY, ANY]))
    assert (consumer.in_flight, consumer.next_at, consumer.outbox.flushed) == (True, inf, False)
    assert [held.id for held in consumer.outbox.uncommitted()] == ["b", "a"], "leases of both are renewed"
    broker.line.receive()
    assert [job.id for job in consumer.receive_reply()] == ["c"]
    assert (consumer.in_flight, consumer.next_at, consumer.moved) == (False, 0, 1)
    turn(consumer)
    assert [[commit.job_id for commit in sent.commits] for sent in broker.sent] == [["a"], ["b"]]
    assert broker.sent[1].token == broker.sent[0].token + 1


def test_a_turn_with_nothing_to_say_is_not_asked_for() -> None:
    consumer = consumer_of(ScriptedBroker())
    assert not asked(consumer)
    assert not consumer.in_flight


@pytest.mark.parametrize("trouble", ["sending", "silence", "broken"])
def test_a_turn_that_was_asked_for_in_vain_is_repeated_word_for_word_and_waited_for(trouble: str) -> None:
    broker = ScriptedBroker(*([OSError("gone")] if trouble == "broken" else []), answer(answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    broker.line.refuses = OSError("gone") if trouble == "sending" else None
    consumer.begin_turn(ONE)
    token = consumer.outbox._token
    if trouble == "sending":
        with pytest.raises(RedisAway):
            consumer.send_async()
    else:
        assert consumer.send_async()
        if trouble == "broken":
            broker.line.receive()
        with pytest.raises(RedisAway):
            consumer.receive_reply()
    assert (consumer.in_flight, consumer.outbox.flushed) == (False, False)
    assert not asked(consumer), "while Redis is away one exchange at a time, on the main line"
    assert consumer.exchange() == []
    assert [(sent.token, [commit.job_id for commit in sent.commits]) for sent in broker.sent][-1] == (token, ["a"])
    assert {sent.token for sent in broker.sent} == {token}
    assert consumer.outbox.flushed
    broker.line.refuses = None
    assert asked(consumer, ONE), "and then as before"


def test_an_answer_that_comes_while_redis_is_away_by_other_calls_is_not_taken() -> None:
    broker = ScriptedBroker(answer(answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer)
    broker.fails["extend"] = [OSError("gone")]
    with pytest.raises(RedisAway):
        consumer.membership.beat(consumer.membership.next_at, [])
    broker.line.receive()
    with pytest.raises(RedisAway):
        consumer.receive_reply()
    assert (broker.line.dropped, broker.sent, consumer.in_flight) == (1, [], False)
    turn(consumer)
    assert [commit.job_id for commit in broker.sent[0].commits] == ["a"]


def test_a_turn_is_made_by_its_text_where_the_script_is_not_known() -> None:
    broker = ScriptedBroker(NoScriptError("none"), answer(claimed("b"), answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer, ONE)
    broker.line.receive()
    assert [job.id for job in consumer.receive_reply()] == ["b"]
    assert [(sent.token, [commit.job_id for commit in sent.commits]) for sent in broker.sent] == [(1, ["a"])] * 2


def test_a_turn_that_finds_no_entry_is_kept_and_asked_for_again_under_another_token() -> None:
    broker = ScriptedBroker(answer(status="unregistered"), answer(answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer, ONE)
    broker.line.receive()
    assert consumer.receive_reply() == []
    assert (consumer.turn, consumer.turn_due, broker.calls.count("register")) == (None, True, 2)
    assert asked(consumer, ONE)
    broker.line.receive()
    consumer.receive_reply()
    assert broker.sent[1].token == broker.sent[0].token + 1
    assert consumer.outbox.flushed


def test_an_entry_that_is_made_anew_meanwhile_makes_no_two_turns_of_one_token() -> None:
    broker = ScriptedBroker(answer(claimed("b"), answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer, ONE)
    broker.known = False
    consumer.membership.beat(consumer.membership.next_at, [])
    broker.line.receive()
    assert [job.id for job in consumer.receive_reply()] == ["b"], "the answer is one to what was asked"
    turn(consumer, ONE)
    assert broker.sent[1].token > broker.sent[0].token + 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_sent_before_an_outage_starts_nothing_after_it(lost: bool) -> None:
    """Other calls have told of its begin and end; what was asked before may be answered, or was `lost` in it."""
    broker = ScriptedBroker(answer(claimed("b")))
    consumer = consumer_of(broker)
    link = consumer.outbox._link
    assert asked(consumer, ONE)
    with pytest.raises(RedisAway):
        link.attempt(partial(_raise, ConnectionError("gone")))
    link.attempt(lambda: None)
    if lost:
        with pytest.raises(RedisAway):
            consumer.receive_reply()
        assert (link.away_since, link.outages, consumer.in_flight) == (None, 1, False)
        assert turn(consumer, ONE) == ["b"]
        assert broker.sent[0] == broker.sent[-1]
    else:
        broker.line.receive()
        assert [job.id for job in consumer.receive_reply()] == ["b"]


@pytest.mark.parametrize("error", [NoPermissionError("no rights"), SchemaMismatch("too old")], ids=["refused", "too old"])
def test_an_answer_that_arrives_after_an_outage_counts(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    link = consumer.outbox._link
    assert asked(consumer, ONE)
    with pytest.raises(RedisAway):
        link.attempt(partial(_raise, ConnectionError("gone")))
    link.attempt(lambda: None)
    monkeypatch.setattr(broker.line, "answer", partial(_raise, error))
    with pytest.raises(RedisAway):
        consumer.receive_reply()
    assert link.away_since is not None and link.outages == 2
    assert link.outdated == isinstance(error, SchemaMismatch)


def _raise(error: Exception) -> None:
    raise error


def test_an_exchange_that_is_waited_for_takes_the_place_of_what_was_asked() -> None:
    """At the end, say: no process would learn of it any more."""
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    assert asked(consumer)
    turn(consumer)
    assert (broker.line.dropped, consumer.in_flight, consumer.outbox.flushed) == (1, False, True)
    assert [commit.job_id for commit in broker.sent[0].commits] == ["a"]


def rung(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer.doorbells._any, "receive", lambda: "sms")
    consumer.doorbells._on_any()


def test_a_bell_that_rings_meanwhile_wants_another_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    assert asked(consumer, ONE)
    rung(consumer, monkeypatch)
    assert consumer.next_at == inf, "not before the turn ends"
    broker.line.receive()
    consumer.receive_reply()
    assert consumer.next_at == 0
    consumer.poll(-1.0, [ANY])
    assert (consumer.turn_due, broker.rung) == (True, []), "that there is no more is what it found before the bell rang"


@pytest.mark.parametrize("received", [None, False], ids=["ran out", "broke"])
def test_a_wait_that_brought_no_token_wants_no_turn(monkeypatch: pytest.MonkeyPatch, received: bool | None) -> None:
    consumer = consumer_of(ScriptedBroker())
    consumer.poll(100.0, [ANY])
    turn(consumer, ONE)
    assert consumer.next_at == 103.0, "the look after idle_wait"
    for bell in (consumer.doorbells._any, consumer.doorbells._high):
        monkeypatch.setattr(bell, "receive", lambda: received)
    consumer.doorbells._on_any()
    consumer.doorbells._on_high()
    assert (consumer.next_at, consumer.rung.next_at, consumer.turn_due) == (103.0, inf, False)


@pytest.mark.parametrize("lost", [False, True])
def test_a_bell_that_rings_meanwhile_is_rung_for_others_if_the_turn_fills_the_slots(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Also if the answer is `lost`, and the turn repeated."""
    broker = ScriptedBroker(answer(claimed("a")))
    consumer = consumer_of(broker)
    assert asked(consumer, ONE)
    rung(consumer, monkeypatch)
    consumer.poll(-1.0, [ANY])
    if lost:
        with pytest.raises(RedisAway):
            consumer.receive_reply()
        consumer.poll(-1.0, [ANY])
        assert turn(consumer) == ["a"]
    else:
        broker.line.receive()
        assert [job.id for job in consumer.receive_reply()] == ["a"]
    assert consumer.next_at == 0
    consumer.poll(-1.0, [])
    assert broker.rung == ["sms"], "it rang after the slot was given away"
    assert not consumer.doorbells.rung


def test_a_line_that_an_outage_may_have_broken_is_asked_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other calls have told of its begin and end; the line lay still meanwhile, and its silence would be taken for another one."""
    broker = ScriptedBroker(answer(claimed("a")), answer(claimed("b")), answer(claimed("c")))
    consumer = consumer_of(broker)
    link, dropped = consumer.outbox._link, list[str]()
    for name in "abc":
        monkeypatch.setattr(broker.line, "drop", partial(dropped.append, name))
        assert asked(consumer, ONE)
        broker.line.receive()
        assert [job.id for job in consumer.receive_reply()] == [name]
        if name == "a":
            with pytest.raises(RedisAway):
                link.attempt(partial(_raise, ConnectionError("gone")))
            link.attempt(lambda: None)
    assert dropped == ["b"], "once after the outage"
