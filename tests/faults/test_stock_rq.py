"""The proxy and the checker see a real loss: stock RQ on two queues loses the job whose LPOP got no answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis

from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import LOSE, FaultProxy
from tests.kit import guarded
from tests.kit.process import ROOT

rq = pytest.importorskip("rq")
pytestmark = pytest.mark.skipif(guarded.GUARDED, reason="stock RQ needs rights that Fusion's user does not have")


def test_a_reply_that_is_lost_is_a_job_that_is_lost(proxy: FaultProxy, conn: redis.Redis) -> None:
    queue = rq.Queue("r", connection=conn)
    first, second = (queue.enqueue("tests.jobs.basic.noop") for _ in range(2))
    lost = proxy.on("LPOP", LOSE, nth=2)  # of the first two the first asks the other queue, which is empty
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", proxy.url, "q", "r"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50)
    assert (done.returncode, lost.struck) == (0, 1), done.stdout
    assert second.get_status() == "finished"
    assert first.get_status() == "queued"
    assert conn.llen("rq:queue:r") == 0
    with pytest.raises(AssertionError, match=rf"{first.id}: hash says queued, sets say None"):
        check_conservation(conn, [first.id, second.id])
