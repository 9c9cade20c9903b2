"""A turn that is encoded before it is wanted: it is sent if it is still the right one, and another in its place if it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusion.runtime.consumer import Consumer
from fusion.runtime.free_slots import ANY, FreeSlots
from fusion.runtime.redis_link import RedisAway
from fusion.store.layout.records import ClaimFilter
from tests.kit.scripted_broker import ScriptedBroker, answer, claimed
from tests.runtime.test_consumer import DONE, ONE, consumer_of, turn

TWO = FreeSlots([ANY, ANY])


def ready(broker: ScriptedBroker, *queues: str) -> Consumer:
    """A consumer that has taken a turn and has the next one ready."""
    consumer = consumer_of(broker, *queues)
    turn(consumer, ONE)
    consumer.prepare_turn(ONE, ClaimFilter())
    return consumer


def test_the_one_that_is_ready_is_sent_as_it_is() -> None:
    broker = ScriptedBroker(answer(), answer(claimed("a")))
    consumer = ready(broker)
    consumer.prepare_turn(TWO, ClaimFilter())  # one is enough
    (first, call) = broker.made
    assert (first.encoded, call.encoded) == (False, True)
    assert turn(consumer, ONE) == ["a"]
    assert len(broker.made) == 2
    assert (broker.sent[1].token, broker.sent[1].slots, broker.sent[1].commits) == (broker.sent[0].token + 1, [0], [])


def test_the_next_one_is_another() -> None:
    broker = ScriptedBroker()
    consumer = ready(broker)
    turn(consumer, ONE)
    consumer.prepare_turn(TWO, ClaimFilter())
    turn(consumer, TWO)
    assert [sent.token for sent in broker.sent] == [1, 2, 3]
    assert [call.encoded for call in broker.made] == [False, True, True]
    assert broker.sent[2].slots == [0, 0]


def settle(consumer: Consumer) -> None:
    consumer.resolve(claimed("z"), DONE, 0.1)


def begin(consumer: Consumer) -> None:
    consumer.outbox.report_begun(claimed("z", ahead=True))


def serve(consumer: Consumer) -> None:
    consumer._served_queues.served("sms")


def rename(consumer: Consumer) -> None:
    consumer.membership.name = "w.1"


def succeed(consumer: Consumer) -> None:
    consumer.membership.incarnation = "another"


@pytest.mark.parametrize("change", [settle, begin, serve, rename, succeed, None])
def test_a_prepared_turn_is_encoded_again_after_a_change(change: Callable[[Consumer], None] | None) -> None:
    broker = ScriptedBroker()
    consumer = ready(broker, "sms", "email")
    if change is not None:
        change(consumer)
    consumer.begin_turn(ONE)
    consumer.exchange()
    sent = broker.sent[-1]
    assert [commit.job_id for commit in sent.commits] == (["z"] if change is settle else [])
    assert [job for job, _ in sent.begun] == (["z"] if change is begin else [])
    assert sent.queues == (["email", "sms"] if change is serve else ["sms", "email"])
    assert sent.name == ("w.1" if change is rename else "w")
    assert sent.incarnation == consumer.membership.incarnation
    assert len(broker.made) == (2 if change is None else 3)


@pytest.mark.parametrize(("slots", "claim_filter"), [(TWO, ClaimFilter()), (ONE, ClaimFilter("7", ("held:sms:a.b",)))])
def test_other_slots_and_wishes_are_sent_in_its_place(slots: FreeSlots, claim_filter: ClaimFilter) -> None:
    broker = ScriptedBroker()
    consumer = ready(broker)
    consumer.begin_turn(slots, claim_filter)
    consumer.exchange()
    assert (broker.sent[-1].slots, broker.sent[-1].claim_filter) == (slots.floors, claim_filter)


def test_a_turn_without_an_answer_is_repeated_unchanged() -> None:
    broker = ScriptedBroker(answer(), OSError("gone"), answer(claimed("a")))
    consumer = ready(broker)
    consumer.begin_turn(ONE)
    with pytest.raises(RedisAway):
        consumer.exchange()
    consumer.prepare_turn(TWO, ClaimFilter())
    assert [job.id for job in consumer.exchange()] == ["a"]
    assert broker.sent[1] == broker.sent[2]


def test_a_worker_that_redis_forgot_asks_under_another_token() -> None:
    broker = ScriptedBroker(answer(), answer(status="unregistered"), answer(claimed("a")))
    consumer = ready(broker)
    consumer.begin_turn(ONE)
    assert consumer.exchange() == []
    assert [job.id for job in consumer.exchange()] == ["a"]
    assert [sent.token for sent in broker.sent] == [1, 2, 3]
