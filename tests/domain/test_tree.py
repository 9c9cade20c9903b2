"""The graph around a job, as people look at it."""

from __future__ import annotations

import pytest
import redis

from fusion import Dependency, Job, Queue
from fusion.exceptions import NoSuchJobError
from fusion.jobs.tree import JobTree
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand
from tests.store.kin_hands import settle

TASK = "tests.jobs.basic.noop"


def levels(tree: JobTree) -> dict[str, int]:
    return {node.id: node.level for node in tree.nodes}


def ties(tree: JobTree) -> dict[str, dict[str, str]]:
    return {node.id: dict(node.parents) for node in tree.nodes if node.parents}


def run(broker: Broker, count: int) -> list[str]:
    """The jobs that a worker then runs, in their order."""
    hand, done = Hand(broker, "q"), []
    for _ in range(count):
        job = hand.take()
        hand.tell(job)
        settle(broker)
        done.append(job.id)
    return done


def diamond(queue: Queue) -> None:
    queue.enqueue(TASK, job_id="top")
    queue.enqueue(TASK, job_id="left", depends_on="top")
    queue.enqueue(TASK, job_id="right", depends_on=Dependency("top", on_failure="wait"))
    queue.enqueue(TASK, job_id="end", depends_on=["left", Dependency("right", allow_failure=True)])


def test_each_job_stands_once_with_those_of_the_tree_that_it_waits_for(conn: redis.Redis) -> None:
    diamond(Queue("q"))
    tree = Job.fetch("left").tree()
    assert levels(tree) == {"left": 0, "top": -1, "end": 1}
    assert ties(tree) == {"left": {"top": "fail"}, "end": {"left": "fail"}}
    assert [(node.id, node.others) for node in tree.nodes if node.others] == [("end", 1)], "right is no kin of left"
    assert {node.status for node in tree.nodes} == {"queued", "deferred"} and {node.function for node in tree.nodes} == {TASK}
    whole = Job.fetch("top").tree()
    assert levels(whole) == {"top": 0, "left": 1, "right": 1, "end": 2}
    assert ties(whole) == {"left": {"top": "fail"}, "right": {"top": "wait"}, "end": {"left": "fail", "right": "ignore"}}
    assert not whole.cut


def test_ended_jobs_stay_in_the_tree(conn: redis.Redis, broker: Broker) -> None:
    diamond(Queue("q"))
    assert run(broker, 4) == ["top", "left", "right", "end"]
    assert not conn.exists("rq:job:top:children")
    tree = Job.fetch("top").tree()
    assert levels(tree) == {"top": 0, "left": 1, "right": 1, "end": 2} and {node.status for node in tree.nodes} == {"finished"}
    Job.fetch("end").delete()
    assert [(node.id, node.status) for node in Job.fetch("left").tree().nodes] == [
        ("left", "finished"),
        ("top", "finished"),
        ("end", "gone"),
    ]
    check_conservation(conn, ["top", "left", "right"])


def test_the_names_go_with_the_parent(conn: redis.Redis, broker: Broker) -> None:
    diamond(Queue("q"))
    assert conn.smembers("rq:job:top:dependents") == {b"left", b"right"}
    run(broker, 4)
    for one in ("top", "left", "right", "end"):
        Job.fetch(one).delete()
        assert list(conn.scan_iter(f"rq:job:{one}:*")) == [], "not with its children only, which may stay for long"
    assert list(conn.scan_iter("rq:job:*")) == []


def test_a_job_enqueued_anew_without_the_parent_is_no_child_of_it(conn: redis.Redis, broker: Broker) -> None:
    queue = Queue("q")
    queue.enqueue(TASK, job_id="a")
    queue.enqueue(TASK, job_id="b", depends_on="a")
    assert run(broker, 2) == ["a", "b"]
    queue.enqueue(TASK, job_id="b")
    assert levels(Job.fetch("a").tree()) == {"a": 0}


def test_a_large_graph_is_cut_with_something_of_either_side(conn: redis.Redis) -> None:
    queue = Queue("q")
    above = queue.enqueue_many([Queue.prepare_data(TASK) for _ in range(230)])
    middle = queue.enqueue(TASK, depends_on=above)
    below = [queue.enqueue(TASK, depends_on=middle) for _ in range(30)]
    tree = middle.tree()
    found = levels(tree)
    assert (len(found), tree.cut) == (261, False)
    assert [job.id for job in above if found[job.id] != -1] == [] and {found[job.id] for job in below} == {1}
    assert len(ties(tree)[middle.id]) == 230
    small = middle.tree(limit=21)
    assert small.cut and sorted(levels(small).values()) == [-1] * 10 + [0] + [1] * 10
    assert levels(middle.tree(limit=1)) == {middle.id: 0} and middle.tree(limit=1).cut


def test_a_tree_lists_a_thousand_of_many_children(conn: redis.Redis) -> None:
    queue = Queue("q")
    parent = queue.enqueue(TASK)
    queue.enqueue_many([Queue.prepare_data(TASK, depends_on=parent) for _ in range(1100)])
    assert conn.scard(f"rq:job:{parent.id}:dependents") == 1000
    tree = parent.tree()
    assert (len(tree.nodes), tree.cut) == (1000, True)


def test_a_chain_is_found_to_its_end(conn: redis.Redis) -> None:
    queue, last = Queue("q"), None
    for nth in range(30):
        last = queue.enqueue(TASK, job_id=f"j{nth}", depends_on=last)
    assert levels(Job.fetch("j0").tree())["j29"] == 29 and levels(Job.fetch("j29").tree())["j0"] == -29


def test_a_job_that_is_not_there_has_none(conn: redis.Redis) -> None:
    with pytest.raises(NoSuchJobError):
        Job("nobody", {}, conn).tree()
    conn.lpush("rq:job:lone:children", "x")  # by an outsider
    job = Queue("q").enqueue(TASK, job_id="lone")
    assert levels(job.tree()) == {"lone": 0}
