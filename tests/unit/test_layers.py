"""Where the jobs of a graph stand when it is drawn."""

from __future__ import annotations

import random

from fusion.jobs.layers import Knot, layered, spots


def knot(job_id: str, *parents: str, function: str = "shop.step", status: str = "finished") -> Knot:
    return Knot(job_id, function, status, dict.fromkeys(parents, "fail"))


def test_each_stands_behind_all_that_it_waits_for() -> None:
    assert layered({"a": [], "b": ["a"], "c": ["a", "b"], "d": ["gone"], "e": ["c", "d"]}) == {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 0,
        "e": 3,
    }


def test_a_circle_stands_behind_the_others() -> None:
    assert layered({"a": [], "b": ["a", "d"], "c": ["b"], "d": ["c"]}) == {"a": 0, "b": 1, "c": 1, "d": 1}
    assert len(spots([knot("a", "a"), knot("b", "c"), knot("c", "b")])) == 3


def test_lines_of_two_chains_do_not_cross_and_the_order_of_reading_does_not_matter() -> None:
    graph = [knot("root"), knot("z1", "root"), knot("a2", "z1"), knot("b1", "root"), knot("y2", "b1"), knot("end", "a2", "y2")]
    rows = {one.ids[0]: (one.layer, one.row) for one in spots(graph)}
    assert (rows["b1"] < rows["z1"]) == (rows["y2"] < rows["a2"])
    assert rows["end"] == (3, 0)
    for seed in range(10):
        random.Random(seed).shuffle(graph)
        assert {one.ids[0]: (one.layer, one.row) for one in spots(graph)} == rows


def test_large_graphs_are_grouped_by_function_with_counts() -> None:
    many = [knot("root", function="shop.split")]
    many += [knot(f"a{n}", "root", function="shop.send", status="failed" if n % 4 == 0 else "finished") for n in range(200)]
    many += [knot(f"b{n}", "root", function="shop.bill", status="queued") for n in range(100)]
    many += [knot("end", *(one.id for one in many[1:]), function="shop.join", status="deferred")]
    found = spots(many)
    assert [(one.function, one.layer, dict(one.states)) for one in found if one.layer != 1] == [
        ("shop.split", 0, {"finished": 1}),
        ("shop.join", 2, {"deferred": 1}),
    ]
    middle = {one.function: dict(one.states) for one in found if one.layer == 1}
    assert middle == {"shop.send": {"failed": 50, "finished": 150}, "shop.bill": {"queued": 100}}
    assert found[-1].after == {1: "fail", 2: "fail"} and len(spots(many[:300])) == 300
