"""On walks of the model the hooks tell of each job where it is: what arrived leaves, or ends, and nothing is claimed that did not arrive."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import redis
from hypothesis import Phase

from tests.faults.model.machine import StoreMachine
from tests.faults.model.state import PROBATION, TERMINAL, Job, Order, Wish
from tests.faults.model.walk import walk
from tests.kit.armed import armed

PLACES, WRONG = "armed:places", "armed:wrong"


#: Jobs that were set aside, to run alone or for a worker that has their task. They may have kept what they hold, and arrive though they
#: never left.
_SET_ASIDE = f"not redis.call('HGET', key, 'held_since') and (tonumber(redis.call('HGET', key, 'lost')) or 0) < {PROBATION}"


def _goes(hook: str, place: str, *before: str, but: str = "") -> str:
    """The body of a hook that comes only after these places; none named: after any. `but`: what else must be so, or it may come."""
    checked = " and ".join([f"was ~= '{one}'" for one in before] + ([but] if but else []))
    wrong = f"redis.call('RPUSH', '{WRONG}', '{hook} of ' .. id .. ', which was ' .. was)"
    return "\n".join(
        (
            f"local was = redis.call('HGET', '{PLACES}', id) or 'nowhere'",
            f"if {checked} then {wrong} end" if before else "",
            f"redis.call('HSET', '{PLACES}', id, '{place}')",
        )
    )


BODIES = {
    "arrive": _goes("arrive", "waiting", "nowhere", "away", "ended", "returned", but=_SET_ASIDE),
    "claim": _goes("claim", "running", "waiting", "returned"),
    "return": _goes("return", "returned", "running"),
    "leave": _goes("leave", "away", "waiting", "running", "returned"),
    "end": _goes("end", "ended"),
}
#: Where a job of a status may be that is not blocked.
PLACE = {
    "queued": {"waiting", "returned"},
    "started": {"running"},
    "scheduled": {"nowhere", "away", "returned", "ended"},
    **{key: {"ended"} for key in TERMINAL},
}


def places_of(job: Job) -> set[str]:
    """Where a job may be. One that waits for a slot of its key has arrived; one that is to run alone has not left, nor has one with a key
    that keeps its slot for a worker that has its task."""
    kind = (job.waits_in or "").partition(":")[0]
    if job.status != "blocked":
        return PLACE[job.status]
    if kind in ("limit", "probation"):
        return {"waiting", "returned"}
    return {"away"} if job.key is None else {"away", "waiting", "returned", "running"}


class ArmedMachine(StoreMachine):
    """A walk that asks after each call where the hooks say that each job is."""

    _tools: ClassVar[dict[Any, Any]] = {}

    def _do(self, name: str, *args: Any) -> Any:
        answer = super()._do(name, *args)
        assert self.conn.lrange(WRONG, 0, -1) == [], name
        places = {job_id.decode(): place.decode() for job_id, place in self.conn.hgetall(PLACES).items()}
        for job_id, job in self._model.jobs.items():
            assert places.pop(job_id, "nowhere") in places_of(job), f"{name}: {job_id} is {job.status}"
        assert set(places.values()) <= {"ended"}, f"{name}: these are gone, and did not end: {places}"
        return answer


@pytest.mark.timeout(240)
def test_what_arrives_leaves_or_ends(admin: redis.Redis) -> None:
    with armed(BODIES):
        walk(admin, 7, 40, 50, machine=ArmedMachine)


def test_a_held_job_arrives_when_it_waits_for_its_key(admin: redis.Redis) -> None:
    with armed(BODIES):
        walker = type("ArmedMachine", (ArmedMachine,), {"conn": admin, "_tools": {}})()
        walker.enqueue("a", Order("j0", key="k"), Order("j1", key="k"))
        walker.turn("A", wish=Wish(lacks=True))
        walker.turn("B")
        walker.turn("A", wish=Wish(("held",)))
        walker.turn("B", "finished", slots=())
        walker.turn("A")
        assert list(walker._hands["A"].held) == ["j0"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("hook", BODIES)
def test_a_walk_finds_a_hook_that_is_not_called(admin: redis.Redis, hook: str) -> None:
    with armed({name: body for name, body in BODIES.items() if name != hook}):

        class Machine(ArmedMachine):
            _tools: ClassVar[dict[Any, Any]] = {}

        with pytest.raises(AssertionError):
            walk(admin, 7, 40, 50, machine=Machine, phases=(Phase.generate,))
