"""`--order`: inside a class the queues as listed, or in turns."""

from __future__ import annotations

from collections import Counter

import pytest
import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.cli.main import cli
from fusion.runtime.consumer import MOST_SLOTS
from tests.jobs import basic
from tests.kit.length import long_case
from tests.kit.workers import Workers


def fill() -> list[str]:
    """Two LOW jobs for each of three queues, and a HIGH one in the last."""
    ids = [
        Queue(queue).enqueue(basic.noop, job_id=f"{queue}-{n}", priority="low").id for queue in ("c", "b", "a") for n in (1, 2)
    ]
    return [*ids, Queue("c").enqueue(basic.noop, job_id="c-high", priority="high").id]


def begun(conn: redis.Redis, ids: list[str]) -> list[str]:
    pipe = conn.pipeline(transaction=False)
    for job in ids:
        pipe.hget(f"rq:job:{job}", "started_at")
    times = dict(zip(ids, pipe.execute(), strict=True))
    return sorted(ids, key=lambda job: times[job] or b"")


@pytest.mark.parametrize(
    ("flags", "order", "told"),
    [
        pytest.param(
            ["a", "b", "c"],
            "a-1 a-2 b-1 b-2 c-1 c-2",
            "a, b, c; the highest class first, inside a class in the order listed",
            id="arguments",
        ),
        long_case(
            ["--customq", "a,b,c"],
            "a-1 b-1 c-1 a-2 b-2 c-2",
            "a, b, c; the highest class first, inside a class in turns",
            id="customq",
        ),
        long_case(
            ["--customq", "a,b,c", "--order", "listed"], "a-1 a-2 b-1 b-2 c-1 c-2", "in the order listed", id="customq listed"
        ),
        pytest.param(
            ["a", "b", "c", "--order", "round-robin"],
            "a-1 b-1 c-1 a-2 b-2 c-2",
            "inside a class in turns",
            id="arguments in turns",
        ),
    ],
)
@pytest.mark.parametrize("horses", [[], ["--horses", "1"]], ids=["fork", "warm"])
def test_the_order_inside_a_class(
    workers: Workers, conn: redis.Redis, flags: list[str], order: str, told: str, horses: list[str]
) -> None:
    ids = fill()
    worker = workers.burst(*flags, *horses)
    found = begun(conn, ids)
    assert found[0] == "c-high", "class first, whatever the order"
    rest = found[1:]
    if "turns" in told:
        # c has just had its turn, so a and b come before it.
        assert [sorted(one[0] for one in rest[i : i + 3]) for i in (0, 3)] == [["a", "b", "c"]] * 2
    else:
        assert rest == order.split()
    assert told in next(line for line in worker.output.splitlines() if " serves " in line)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("flags", "enough", "within"),
    [
        pytest.param(("--executor", "process"), 60, 1, id="process"),
        pytest.param(("--horses", "1"), 240, MOST_SLOTS, id="pool"),
        long_case(("--horses", "1"), 7200, 0.03 * 7200 / 6, id="pool, within 3 %"),
    ],
)
def test_each_queue_gets_its_share(
    flags: tuple[str, ...], enough: int, within: float, workers: Workers, conn: redis.Redis
) -> None:
    """To within the jobs of one turn: a process that runs short jobs one after the other gets more of them at once. 7,200 jobs show 3 %."""
    ids = []
    for queue in ("c", "b", "a"):
        ids += [f"{queue}-{n}" for n in range(enough * 3 // 4)]
        Queue(queue).enqueue_many(Queue.prepare_data(basic.noop, job_id=one) for one in ids if one[0] == queue)
    ids += [Queue("c").enqueue(basic.noop, job_id="c-high", priority="high").id]
    worker = workers.burst("a", "b", "c", "--order", "weighted", "--weight", "b=4", "--weight", "other=9", *flags)
    found = begun(conn, ids)
    assert found[0] == "c-high"
    shares = Counter(one[0] for one in found[1 : enough + 1])
    assert all(abs(shares[queue] - enough * weight // 6) <= within for queue, weight in (("a", 1), ("b", 4), ("c", 1))), shares
    assert "inside a class by weight" in worker.output


def test_weights_are_for_that_order_alone() -> None:
    result = CliRunner().invoke(cli, ["worker", "a", "--weight", "a=2"])
    assert result.exit_code == 2
    assert "--weight is for --order weighted; give both" in result.output
