"""`POST /api/v1/jobs/{id}/stop`."""

from __future__ import annotations

import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, put
from tests.web.harness import Answer, ServerProcess, Tokens


def test_a_job_is_stopped_for_a_caller_outside(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    broker = Broker(conn)
    put(broker, "sms", "running", "waiting")
    hand = Hand(broker, "sms")
    claimed = hand.take()

    def stop(job_id: str) -> Answer:
        return service.ask("POST", f"/api/v1/jobs/{job_id}/stop", {}, token=tokens.by_scope["operate"])

    for _ in range(2):  # again, it is what it answers
        assert (stop("running").status, stop("running").json) == (
            202,
            {"job_id": "running", "status": "started", "pending": True},
        )
        assert (stop("waiting").status, stop("waiting").json) == (
            200,
            {"job_id": "waiting", "status": "stopped", "pending": False},
        )
    assert check_conservation(conn, ["running", "waiting"]) == {"running": "started", "waiting": "stopped"}
    hand.tell(claimed)
    late = stop("running")
    assert (late.status, late.json["error"]["code"]) == (409, "wrong_state")
    assert "it has ended (finished)" in late.json["error"]["message"]
    assert (stop("nobody").status, stop("a%20b").status) == (404, 404)
