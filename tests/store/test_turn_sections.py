"""The sections behind the arguments of a turn: `turn.lua` finds each where `turn_codec` puts it, however long the others are."""

from __future__ import annotations

import redis

from fusion.store.layout.records import Claimed, ClaimFilter, TurnRequest
from fusion.store.write import turn_codec
from fusion.store.write.broker import Broker
from tests.kit.hands import TASK, Hand, ids, outcome, put


def test_each_section_is_read_where_it_is_written(broker: Broker, conn: redis.Redis) -> None:
    """Two outcomes, two queues, three slots of which one is ahead, two that have begun, two sets and two tasks in one turn."""
    hand = Hand(broker, "a", "b")
    put(broker, "a", "done", "failed")
    done, failed = hand.claim(2)
    put(broker, "b", "ahead-1", "ahead-2")
    first, second = hand.turn(slots=[0, 0], ahead=2).jobs
    put(broker, "a", "next", "lacked")
    put(broker, "b", "high", priority=2)
    filtered = ClaimFilter(sets=("probation:a", "probation:b"), lacking={"tasks.other": "no such module", TASK: "no such task"})
    turn = hand.turn(
        outcome(done, fields={"result": "1"}),
        outcome(failed, "failed", reason="ValueError: no"),
        slots=[1, 2, 0],
        queues=["b", "a"],
        ahead=1,
        begun=[first, second],
        claim_filter=ClaimFilter(sets=filtered.sets, lacking={"tasks.other": "no such module"}),
    )
    assert turn.answers == ["ok", "ok"]
    assert ids(turn.jobs) == ["high", "next"], "the second slot takes high priorities alone"
    assert [job.ahead for job in turn.jobs] == [False, True]
    assert [conn.hget(f"rq:job:{job.id}", "begun") for job in (first, second)] == [
        job.execution_id.encode() for job in (first, second)
    ]
    assert ids(hand.turn(slots=[0], queues=["a"], claim_filter=filtered).jobs) == [], "each is of a task that the worker lacks"
    assert conn.hget("rq:job:lacked", "reason") == b"no such task"


def test_the_sections_stand_in_one_order() -> None:
    commit = outcome(Claimed("q", "j", "e:1:1", {}), fields={"result": "1"})
    request = TurnRequest(
        "w",
        "i",
        3,
        [commit, outcome(Claimed("q", "j2", "e:1:2", {}), "held", reason="why")],
        ["q", "* last"],
        [2, 0],
        30,
        420,
        1,
        [("k", "e:1:1a")],
        ClaimFilter("v", ("held:q:t",), {"t": "why"}),
    )
    args, rest = turn_codec.arguments(request)
    assert rest == [
        *("q", "* last"),
        *("k", "e:1:1a"),
        *("held:q:t",),
        *("t", "why"),
        *("finished", "j", "e:1:1", 0, 0, 2, "result", "1"),
        *("held", "j2", "e:1:2", 0, 0, 0, 0, "why"),
    ]
    counts = {name: value for name, value in args.items() if name.startswith("n_")}
    assert counts == {"n_queues": 2, "n_slots": 2, "n_outcomes": 2}
    assert (args["lowest"], args["special"]) == ("2 0", "0 0 0 1 1 1 1 v")


def test_what_few_turns_have_takes_no_word_of_the_others() -> None:
    args, rest = turn_codec.arguments(TurnRequest("w", "i", 3, [], ["q"], [0, 0], 30, 420))
    assert rest == ["q"]
    assert (args["lowest"], args["special"]) == (0, "")
