"""What a step of the walk may be, and how often: a method of the machine and what it is given."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.faults.model.state import IDS, INBOX, QUEUES, START, Order, Wish

_DAY = 86_400_000

_ids = st.sampled_from(IDS)
_numbers = st.integers(0, 11)  # of the jobs that there are
_queues = st.sampled_from(QUEUES)
_hands = st.sampled_from("AB")
_some = st.lists(_numbers, min_size=1, max_size=3)


def _lists(priorities: list[int], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Order]]:
    order = st.builds(
        Order,
        _ids,
        st.sampled_from(priorities),
        front=st.sampled_from([False, False, False, True]),
        ttl=st.sampled_from([None, None, None, 40]),
        at=st.sampled_from([None, None, None, None, START - 1, START + 20_000]),
        on_lost=st.sampled_from([None, None, None, "fail", "again"]),
        result_ttl=st.sampled_from([500, 0, -1]),
        **more,
    )
    return st.lists(order, min_size=1, max_size=4, unique_by=lambda order: order.id)


_orders = _lists([1, 1, 0, 2, 5])
_keyed_orders = _lists(
    [1, 1, 0, 2],
    key=st.sampled_from(["k", "k", "l"]),
    most=st.sampled_from([None, 1, 1, 2]),
    discard=st.sampled_from([False, False, False, False, True]),
)
_rated_orders = _lists([1, 1, 2], key=st.just("r"), rate=st.sampled_from([(30_000, 1), (30_000, 2)]))
_keys = st.sampled_from(["k", "k", "l", "r"])
_fair_orders = _lists([1, 1, 1, 2], fair=st.sampled_from([None, "x", "x", "y"]))
_seldom = st.sampled_from([False, False, False, False, True])
_delayed = st.builds(Order, _ids, front=st.booleans(), ttl=st.just(60), delay=st.sampled_from([0, 5, 40]))
_kinds = st.sampled_from(
    [
        "finished",
        "finished",
        "repeat",
        "retry",
        "failed",
        "release",
        "held",
        "later",
        "limited",
        "lost",
        "struck",
        "displaced",
        "suspect",
        "stopped",
    ]
)
_wishes = st.sampled_from([
    Wish(), Wish(("held",)), Wish(lacks=True), Wish(("probation",), lacks=True), Wish(("held", "probation"), alone=True),
    Wish(("probation",), alone=True, only=True),
])  # fmt: skip

Step = tuple[str, tuple[Any, ...], dict[str, Any]]


def _step(name: str, *first: st.SearchStrategy[Any], rest: st.SearchStrategy[list[Any]] | None = None, **named: Any) -> Any:
    args = st.tuples(*first) if rest is None else st.tuples(st.tuples(*first), rest).map(lambda parts: (*parts[0], *parts[1]))
    return st.tuples(st.just(name), args, st.fixed_dictionaries(named))


_WEIGHTED = (
    (9, _step("enqueue", _queues, rest=_orders, clash=_seldom)),
    (3, _step("enqueue", _queues, rest=_orders, clash=_seldom, room=st.integers(1, 5))),
    (4, _step("enqueue", st.sampled_from(["a", "a", INBOX]), rest=_fair_orders, clash=_seldom)),
    (9, _step("enqueue", st.sampled_from("ab"), rest=_keyed_orders, clash=_seldom)),
    (3, _step("enqueue", st.sampled_from("ab"), rest=_rated_orders, clash=_seldom)),
    (2, _step("enqueue", _queues, rest=st.lists(_delayed, min_size=1, max_size=2), clash=_seldom)),
    (1, _step("push", _ids)),
    (
        36,
        _step(
            "turn",
            _hands,
            rest=st.lists(_kinds, max_size=3),
            delay=st.sampled_from([0, 1, 700]),
            back=st.booleans(),
            keep=st.sampled_from([False, False, True]),
            queues=st.sampled_from([QUEUES, QUEUES[::-1], ("b", "a"), ("a",)]),
            slots=st.sampled_from([(0,), (0,), (0, 0), (2, 0), (0, 2, 0), ()]),
            answered=st.sampled_from([True, True, True, False]),
            wish=_wishes,
        ),
    ),
    (2, _step("beat", _hands, gives_up=st.booleans())),
    (2, _step("restart", _hands, seen=st.booleans())),
    (1, _step("leave", _hands)),
    (3, _step("cancel", _numbers)),
    (3, _step("stop", _numbers)),
    (2, _step("delete", rest=_some)),
    (1, _step("empty", _queues, limit=st.sampled_from([1, 2, 500]))),
    (
        4,
        _step(
            "requeue", rest=_some, keep_place=st.sampled_from([False, True, "front"]), quarantined=st.booleans(), delay=st.sampled_from([0, 0, 0, 20])
        ),
    ),
    (2, _step("reschedule", _numbers, st.sampled_from([-5000, 1000, 90_000]))),
    (3, _step("quarantine", _numbers)),
    (2, _step("pause", _queues, stop=st.sampled_from([True, False, False]))),
    (2, _step("gate", st.sampled_from("ab"), limit=st.sampled_from([None, 1, 2]), rate=st.sampled_from([None, None, (30_000, 2)]))),
    (2, _step("pin", _keys, st.sampled_from([None, None, 1, 2, 3]))),
    (2, _step("halt", _keys, st.sampled_from([None, 20_000]))),
    (1, _step("go_on", _keys)),
    (2, _step("release_slot", _keys, _numbers)),
    (1, _step("suspend", stop=st.sampled_from([True, False, False]))),
    (10, _step("watch", st.sampled_from([1, 4]), st.sampled_from([5_000, 10_000]), alive=st.sampled_from(["", "A", "B", "AB"]))),
    (2, _step("prune", st.sampled_from(["", "", "A", "B"]))),
    (1, _step("promote", st.sampled_from([1, 100]))),
    (3, _step("expire", st.sampled_from([1, 100]))),
    (1, _step("clean")),
    (2, _step("pass_time", st.sampled_from([1, 999, 31_000, 65_000, 605_000, 2 * _DAY, 40 * _DAY, -1, -20_000, -90_000, -3_600_000]))),
    (1, _step("forget_scripts")),
    (1, _step("forget_worker", _hands)),
    (1, _step("hear", _queues)),
    (6, _step("resend", st.integers(0, 4))),
    (6, _step("resend", st.integers(0, 200))),
)  # fmt: skip
#: `one_of` would take each kind once, whatever its weight.
STEPS: st.SearchStrategy[Step] = st.sampled_from([i for i, (weight, _) in enumerate(_WEIGHTED) for _ in range(weight)]).flatmap(
    lambda i: _WEIGHTED[i][1]
)
